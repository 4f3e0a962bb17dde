"""What a build of torch for some CUDA needs at least of NVIDIA's driver and of the card."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

from probes.reading import parse_int

_TABLE = Path(__file__).with_name("cuda_versions.toml")
_LAST_BRANCHES = (("3.0", "390"), ("5.0", "470"), ("7.5", "580"))  # below these: Fermi, Kepler, Maxwell to Volta


def find_minimum_driver(cuda_version: str | None, platform: str = sys.platform) -> str | None:
    """The oldest driver's version for this CUDA; None for a CUDA that the table does not know."""
    return _find_release(cuda_version).get("windows" if platform == "win32" else "linux")


def find_oldest_capability(cuda_version: str | None) -> str | None:
    """The lowest compute capability that anything built with this CUDA can have kernels for; None: not known."""
    return _find_release(cuda_version).get("oldest_capability")


def find_last_branch(capability: str | None) -> str | None:
    """The last branch of drivers for cards of this compute capability; None: no end is known. By NVIDIA's page of
    legacy GPUs, https://www.nvidia.com/en-us/drivers/unix/legacy-gpu/ (docs/findings/gpu-ignored-by-driver.md)."""
    return next((branch for end, branch in _LAST_BRANCHES if is_older(capability, end)), None)


def _find_release(cuda_version: str | None) -> dict[str, str]:
    words = (cuda_version or "").split(".")
    releases = _read_releases()
    return releases.get(".".join(words[:2])) or releases.get(words[0]) or {}


def is_older(version: str | None, minimum: str | None) -> bool | None:
    """Whether one version of dotted numbers comes before another; None where either is none."""
    left, right = parse_version(version), parse_version(minimum)
    return None if left is None or right is None else left < right


def parse_version(text: str | None) -> tuple[int, ...] | None:
    numbers = [parse_int(word) for word in (text or "").split(".")]
    known = [number for number in numbers if number is not None]
    return tuple(known) if known and len(known) == len(numbers) else None


@cache
def _read_releases() -> dict[str, dict[str, str]]:
    import tomllib  # takes milliseconds, and most machines never ask

    with _TABLE.open("rb") as file:
        rows: list[dict[str, str]] = tomllib.load(file)["release"]
    return {row["cuda"]: row for row in rows}
