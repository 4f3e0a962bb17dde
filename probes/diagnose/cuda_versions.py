"""Which NVIDIA driver a build of torch for some CUDA needs at least."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

from probes.reading import parse_int

_TABLE = Path(__file__).with_name("cuda_versions.toml")


def find_minimum_driver(cuda_version: str | None, platform: str = sys.platform) -> str | None:
    """The oldest driver's version for this CUDA; None for a CUDA that the table does not know."""
    words = (cuda_version or "").split(".")
    releases = _read_releases()
    row = releases.get(".".join(words[:2])) or releases.get(words[0])
    return row.get("windows" if platform == "win32" else "linux") if row else None


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
