"""Starts `python -m probes.gpu.nvidia`, waits no longer than told, and takes what it said.

NVML can hang or crash its process, so it has one of its own.
"""

import json
import os
import sys
from dataclasses import dataclass
from typing import Any

from probes.gpu.child_process import TIMEOUT, find_library, run_child
from probes.hardware import Accelerator, Outcome

_MODULE = "probes.gpu.nvidia"
_LIBRARY = "libnvidia-ml.so.1"
_DRIVER_SIGNS = ("/dev/nvidiactl", "/dev/nvidia0", "/proc/driver/nvidia/version", "/dev/dxg")
_WINDOWS_LIBRARY = "nvml.dll"
_TOLD = ("driver_version", "cuda_driver_version", "library", "library_version", "library_error", "fabric_state")


@dataclass(frozen=True, slots=True)
class NvidiaReading:
    outcome: Outcome
    reason: str | None = None
    driver_version: str | None = None
    cuda_driver_version: str | None = None
    accelerators: tuple[Accelerator, ...] = ()
    library: str | None = None  # the library's file, once it was loaded
    library_version: str | None = None  # in the driver's own count, as 580.65.06; known even if it does not start
    library_error: str | None = None  # why it did not start, as NVML_ERROR_LIB_RM_VERSION_MISMATCH
    # not-started, in-progress, completed, failed: the least advanced of all cards; None: no card is on a fabric
    fabric_state: str | None = None


def read_nvidia(deadline_seconds: float, environment: dict[str, str] | None = None) -> NvidiaReading:
    """`absent` at once where there is no NVIDIA driver; otherwise what the child says before the deadline."""
    environment = dict(os.environ) if environment is None else environment
    if not is_driver_present(environment):
        return NvidiaReading(Outcome.ABSENT, "no NVIDIA driver: neither its devices nor libnvidia-ml are here")
    output, ending = run_child(_MODULE, "NVML", deadline_seconds, environment)
    return parse_output(output, ending)


def is_driver_present(environment: dict[str, str]) -> bool:
    """Whether starting a child is worth it; some file look-ups, nothing loaded.

    A pynvml of somebody's own on PYTHONPATH (remote cards, tests) stands for a driver too.
    """
    if any(os.path.exists(sign) for sign in _DRIVER_SIGNS):  # noqa: PTH110
        return True
    if sys.platform == "win32":
        return os.path.exists(os.path.join(environment.get("SYSTEMROOT", r"C:\Windows"), "System32", _WINDOWS_LIBRARY))  # noqa: PTH110, PTH118
    shims = environment.get("PYTHONPATH", "").split(os.pathsep)
    candidates = [f"{folder}/{name}" for folder in shims if folder for name in ("pynvml.py", "pynvml/__init__.py")]
    found = any(os.path.exists(candidate) for candidate in candidates)  # noqa: PTH110
    return found or find_library((_LIBRARY,), environment) is not None


def parse_output(output: str, ending: str | None) -> NvidiaReading:
    """Lines as the child writes them; others (a library that prints) are passed over."""
    header: dict[str, Any] = {}
    cards: list[Accelerator] = []
    for line in output.splitlines():
        document = _parse_line(line)
        if "card" in document:
            cards.append(Accelerator(**document["card"]))
        elif document:
            header |= document
    outcome, reason = _judge(header, ending)
    told = {name: header[name] for name in _TOLD if isinstance(header.get(name), str)}
    return NvidiaReading(outcome, reason, accelerators=tuple(cards), **told)


def _parse_line(line: str) -> dict[str, Any]:
    try:
        document = json.loads(line)
    except ValueError:
        return {}
    if not isinstance(document, dict):
        return {}
    card = document.get("card")
    if card is not None:
        names = set(Accelerator.__dataclass_fields__)
        if not isinstance(card, dict) or not isinstance(card.get("id"), str) or not set(card) <= names:
            return {}
        if isinstance(card.get("throttle_reasons"), list):
            card["throttle_reasons"] = tuple(card["throttle_reasons"])
    return document


def _judge(header: dict[str, Any], ending: str | None) -> tuple[Outcome, str | None]:
    if ending == TIMEOUT:
        return Outcome.TIMEOUT, "NVML did not answer in time; the driver or a card hangs (try: nvidia-smi)"
    if ending is not None:
        return Outcome.FAILED, ending
    if "outcome" in header:
        return Outcome(header["outcome"]), header.get("reason")
    return (Outcome.OK, None) if header.get("done") else (Outcome.FAILED, "the NVML process said nothing")
