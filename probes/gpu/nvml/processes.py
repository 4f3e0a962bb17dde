"""Which processes hold a card's memory, and whether another may begin to compute there.

NVML tells the PID as the driver sees it. In a container that may be the host's number, which here belongs to nobody
or to somebody else: outside the first PID namespace a process is named only when it holds NVIDIA's device files.
"""

import os
from typing import Any

from probes.gpu.nvml.asking import Card, as_count
from probes.gpu.pid_namespace import is_first_namespace
from probes.hardware import Accelerator
from probes.own_time import list_family
from probes.reading import Root, clean

_KINDS = (
    ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetComputeRunningProcesses_v2"),
    ("nvmlDeviceGetGraphicsRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses_v2"),
)
_DEVICE_FILES = ("/dev/nvidia", "/dev/dxg")
_MPS = "nvidia-cuda-mps"  # the kernel keeps 15 characters of nvidia-cuda-mps-server
_BY_MODE = "its compute mode is"
_MAX_PROCESSES = 64
_MAX_FILES = 1024


def read_processes(card: Card, root: Root) -> dict[str, Any]:
    held = _read_held(card)
    if held is None:
        return {"processes": None}
    largest = sorted(held.items(), key=lambda item: -(item[1] or 0))[:_MAX_PROCESSES]
    return {"processes": [_describe(root, pid, size) for pid, size in largest]}


def count_processes(card: Card) -> int | None:
    held = _read_held(card)
    return None if held is None else len(held)


def _read_held(card: Card) -> dict[int, int | None] | None:
    """Bytes by the driver's PID; one that both computes and draws is told twice, with the same bytes."""
    answers = [card.ask_first(calls) for calls in _KINDS]
    told = [answer for answer in answers if isinstance(answer, list | tuple)]
    if not told:
        return None
    held: dict[int, int | None] = {}
    for process in (process for answer in told for process in answer):
        pid, size = as_count(getattr(process, "pid", None)), as_count(getattr(process, "usedGpuMemory", None))
        if pid:
            held[pid] = max(size or 0, held.get(pid) or 0) or None
    return held


def _describe(root: Root, pid: int, size: int | None) -> dict[str, Any]:
    is_here = _is_here(root, pid)
    name = _name(root, pid) if is_here else None
    return {"pid": pid if is_here else None, "name": name, "memory_bytes": size}


def _name(root: Root, pid: int) -> str | None:
    return clean(root.read(f"/proc/{pid}/comm"), 64)


def _is_here(root: Root, pid: int) -> bool:
    """Whether the driver's number is one of this PID namespace."""
    return root.exists(f"/proc/{pid}") and (is_first_namespace(root) or _holds_card(root, pid))


def _holds_card(root: Root, pid: int) -> bool:
    names = root.list(f"/proc/{pid}/fd")[:_MAX_FILES]
    return any((root.link_target(f"/proc/{pid}/fd/{name}") or "").startswith(_DEVICE_FILES) for name in names)


def explain_mode(card: Card, mode: str | None, root: Root) -> str | None:
    """Why no process may begin to compute on it now, by its compute mode; None: one may, as far as is known here."""
    set_default = "nvidia-smi --compute-mode=DEFAULT lets others in"
    if mode == "prohibited":
        return f"{_BY_MODE} prohibited: nobody may compute on it ({set_default})"
    holders = list_holders(card, root) if mode in ("exclusive-process", "exclusive-thread") else []
    names = [_name(root, pid) for pid in holders]
    # MPS holds the card to share it: whoever begins to compute does so through its server.
    if not holders or _MPS in names:
        return None
    who = names[0] or "a process"
    return f"{_BY_MODE} {mode}, and {who} (process {holders[0]}) computes on it; {set_default}"


def is_closed_by_mode(card: Accelerator) -> bool:
    """Whether it is its compute mode that makes a card unusable, and nothing else (explain_mode)."""
    return card.usable is False and (card.why_not or "").startswith(_BY_MODE)


def list_holders(card: Card, root: Root) -> list[int]:
    """Others that compute on it. Ours are who asked (this process's parent) and all that it started: they come and go
    with its own measurements. A process whose number says nothing here is in no list."""
    told = card.ask_first(_KINDS[0])
    pids = {as_count(getattr(process, "pid", None)) for process in told} if isinstance(told, list | tuple) else set()
    known = sorted(pid for pid in pids if pid and _is_here(root, pid))
    return [pid for pid in known if pid not in list_family(os.getppid())]
