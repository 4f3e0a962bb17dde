"""Which processes hold a card's memory.

NVML tells the PID as the driver sees it. In a container that may be the host's number, which here belongs to nobody
or to somebody else: outside the first PID namespace a process is named only when it holds NVIDIA's device files.
"""

from typing import Any

from probes.gpu.nvml.asking import Card, as_count
from probes.reading import Root, clean

_KINDS = (
    ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetComputeRunningProcesses_v2"),
    ("nvmlDeviceGetGraphicsRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses_v2"),
)
_FIRST_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO of linux/proc_ns.h
_DEVICE_FILES = ("/dev/nvidia", "/dev/dxg")
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
    is_ours = root.exists(f"/proc/{pid}") and (_sees_all(root) or _holds_card(root, pid))
    name = clean(root.read(f"/proc/{pid}/comm"), 64) if is_ours else None
    return {"pid": pid if is_ours else None, "name": name, "memory_bytes": size}


def _sees_all(root: Root) -> bool:
    return root.link_target("/proc/self/ns/pid") == _FIRST_NAMESPACE


def _holds_card(root: Root, pid: int) -> bool:
    names = root.list(f"/proc/{pid}/fd")[:_MAX_FILES]
    return any((root.link_target(f"/proc/{pid}/fd/{name}") or "").startswith(_DEVICE_FILES) for name in names)
