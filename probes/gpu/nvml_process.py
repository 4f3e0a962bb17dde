"""Starts `python -m probes.gpu.nvidia`, waits no longer than told, and takes what it said.

NVML can hang or crash its process, so it has one of its own.
"""

import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from probes.gpu.child_process import TIMEOUT, ask_child, find_library
from probes.hardware import Accelerator, GpuProcess, Outcome, Xid
from probes.reading import parse_int

MODULE = "probes.gpu.nvidia"
_LIBRARY = "libnvidia-ml.so.1"
_DRIVER_SIGNS = ("/dev/nvidiactl", "/dev/nvidia0", "/proc/driver/nvidia/version", "/dev/dxg")
_WINDOWS_LIBRARY = "nvml.dll"
_TOLD = ("driver_version", "cuda_driver_version", "library", "library_version", "library_error")
_FABRIC_STATES = ("failed", "not-started", "in-progress", "completed")  # the worst first
_MAX_CARDS = 64
_AT_ONCE = 8
_SHORTEST_SECONDS = 0.2  # below it, no process would come to tell anything


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
    fabric_state: str | None = None  # of _FABRIC_STATES, the worst of all cards; None: no card is on a fabric
    xids: Mapping[str, tuple[Xid, ...]] | None = None  # by PCI address; None: the kernel's log may not be read


def read_nvidia(deadline_seconds: float, environment: dict[str, str] | None = None) -> NvidiaReading:
    """`absent` at once where there is no NVIDIA driver; otherwise what the child says before the deadline.

    A crash ends the telling of every card: each that was not told in full is asked again in a process of its own.
    """
    ends = time.monotonic() + deadline_seconds
    environment = dict(os.environ) if environment is None else environment
    if not is_driver_present(environment):
        return NvidiaReading(Outcome.ABSENT, "no NVIDIA driver: neither its devices nor libnvidia-ml are here")
    answer = ask_child(MODULE, "NVML", deadline_seconds, environment)
    documents = answer.documents
    if answer.ending not in (None, TIMEOUT):
        documents += _ask_each(_list_untold(documents), ends, environment)
    return parse_documents(documents, answer.ending)


def _list_untold(documents: Sequence[dict[str, Any]]) -> list[str]:
    """Numbers of the cards that NVML counted and did not tell in full; a lone card would crash its process again."""
    counts = [document["count"] for document in documents if isinstance(document.get("count"), int)]
    told = {document.get("read") for document in documents}
    numbers = [str(number) for number in range(min(counts[0], _MAX_CARDS))] if counts else []
    return [number for number in numbers if number not in told] if len(numbers) > 1 else []


def _ask_each(numbers: list[str], ends: float, environment: dict[str, str]) -> tuple[dict[str, Any], ...]:
    def ask(number: str) -> tuple[dict[str, Any], ...]:
        left = ends - time.monotonic()
        enough = left > _SHORTEST_SECONDS
        return ask_child(MODULE, "NVML", left, environment, (number,)).documents if enough else ()

    from concurrent.futures import ThreadPoolExecutor  # imports logging; only where there are cards

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return tuple(document for documents in pool.map(ask, numbers) for document in documents)


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


def parse_documents(documents: Sequence[dict[str, Any]], ending: str | None) -> NvidiaReading:
    """What the child told, piece by piece; a piece that is none of its own (a library that prints) is passed over."""
    header: dict[str, Any] = {}
    pieces: dict[str, dict[str, Any]] = {}
    for document in documents:
        key, facts = document.get("key"), document.get("facts")
        if isinstance(key, str) and isinstance(facts, dict):
            pieces.setdefault(key, {}).update(facts)
        else:
            header |= document
    outcome, reason = _judge(header, ending)
    told = {name: header[name] for name in _TOLD if isinstance(header.get(name), str)}
    xids = parse_xids(header.get("xids"))
    cards = (parse_card(facts, xids) for _, facts in sorted(pieces.items(), key=lambda item: _order(item[0])))
    fabric = _find_least([facts.get("fabric_state") for facts in pieces.values()])
    found = tuple(card for card in cards if card is not None)
    return NvidiaReading(outcome, reason, accelerators=found, fabric_state=fabric, xids=xids, **told)


def _order(key: str) -> tuple[int, ...]:
    """`2.1`, the second instance of the third card, comes before `10`."""
    return tuple(parse_int(part) or 0 for part in key.split("."))


def parse_card(facts: dict[str, Any], xids: Mapping[str, tuple[Xid, ...]] | None) -> Accelerator | None:
    known = {name: value for name, value in facts.items() if name in Accelerator.__dataclass_fields__}
    if not isinstance(known.get("id"), str):
        return None
    for name in ("throttle_reasons", "throttle_codes"):
        known[name] = tuple(known[name]) if isinstance(known.get(name), list) else None
    processes = known.get("processes")
    known["processes"] = None if processes is None else tuple(GpuProcess(**process) for process in processes)
    if xids is not None and known.get("pci_address"):
        known["xids"] = xids.get(known["pci_address"], ())
    return Accelerator(**known)


def parse_xids(told: Any) -> dict[str, tuple[Xid, ...]] | None:
    if not isinstance(told, dict):
        return None
    return {address: tuple(Xid(**xid) for xid in found) for address, found in told.items()}


def _find_least(states: list[str | None]) -> str | None:
    return next((state for state in _FABRIC_STATES if state in states), None)


def _judge(header: dict[str, Any], ending: str | None) -> tuple[Outcome, str | None]:
    if ending == TIMEOUT:
        return Outcome.TIMEOUT, "NVML did not answer in time; the driver or a card hangs (try: nvidia-smi)"
    if ending is not None:
        return Outcome.FAILED, ending
    if header.get("outcome") in list(Outcome):
        return Outcome(header["outcome"]), header.get("reason")
    return (Outcome.OK, None) if header.get("done") else (Outcome.FAILED, "the NVML process said nothing")
