"""Memory of this process and of devices: peaks around a step, and a limit that fails before the kernel kills."""

from __future__ import annotations

import contextlib
import ctypes
import resource
from collections.abc import Iterator
from pathlib import Path

import torch

from probes.measurement import MemoryPeak

SELF = Path("/proc/self")
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # malloc.h


class PeakWatch:
    """Peak memory of what runs inside `watching()`, over all the times it was entered."""

    def __init__(self, device: torch.device, base_bytes: int | None) -> None:
        self._device = device
        self._base_bytes = base_bytes
        self._process: int | None = None
        self._allocated: int | None = None
        self._reserved: int | None = None

    @contextlib.contextmanager
    def watching(self, surplus_host: int = 0, surplus_device: int = 0) -> Iterator[None]:
        """surplus: bytes that only the measuring holds (spare batches), taken off the peaks."""
        _hand_back_free_memory()
        exact = _reset_process_peak()
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats(self._device)
        yield
        if exact:
            self._process = _largest(self._process, read_peak_bytes(), surplus_host)
        if self._device.type == "cuda":
            self._allocated = _largest(self._allocated, torch.cuda.max_memory_allocated(self._device), surplus_device)
            self._reserved = _largest(self._reserved, torch.cuda.max_memory_reserved(self._device), surplus_device)

    def peak(self) -> MemoryPeak:
        return MemoryPeak(self._process, self._base_bytes, self._allocated, self._reserved)


def _largest(known: int | None, seen: int | None, surplus: int) -> int | None:
    if seen is None:
        return known
    return max(known or 0, seen - surplus)


def read_resident_bytes() -> int | None:
    """Resident set of this process now (proc_pid_status(5), VmRSS)."""
    return parse_status_bytes(_read_status(), "VmRSS")


def read_file_bytes(process: Path = SELF) -> int | None:
    """Of the resident set, what is mapped from files: libraries above all (RssFile, Linux 4.5 and newer)."""
    return parse_status_bytes(_read_status(process), "RssFile")


def read_peak_bytes() -> int | None:
    """Largest resident set since the last reset (VmHWM)."""
    return parse_status_bytes(_read_status(), "VmHWM")


def parse_status_bytes(text: str, name: str) -> int | None:
    """A `kB` line of /proc/<pid>/status, in bytes."""
    for line in text.splitlines():
        label, _, value = line.partition(":")
        if label == name:
            return int(value.split()[0]) * 1024
    return None


def _read_status(process: Path = SELF) -> str:
    try:
        return (process / "status").read_text()
    except OSError:
        return ""


def _reset_process_peak() -> bool:
    """Whether VmHWM starts afresh (proc_pid_clear_refs(5): 5 resets it; needs no privilege)."""
    try:
        (SELF / "clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _hand_back_free_memory() -> None:
    """Memory that glibc keeps for later would count as if the next step had taken it."""
    with contextlib.suppress(OSError, AttributeError):  # another libc
        ctypes.CDLL(None).malloc_trim(0)


def keep_freed_memory() -> None:
    """From now on glibc gives nothing back to the system: once the heap has grown, no operation finds fresh pages."""
    with contextlib.suppress(OSError, AttributeError):  # another libc
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def count_page_faults() -> int:
    """Of this process until now, without reading from a disk: a page that the system has just given (getrusage(2))."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


@contextlib.contextmanager
def limited_to(extra_bytes: int | None) -> Iterator[None]:
    """Inside, this process may take that many bytes more; beyond them allocations fail like any other.

    An allocation that fails costs one plan; the kernel's out-of-memory killer would take the whole process. RLIMIT_DATA
    counts private writable memory (getrlimit(2), Linux 4.7 and newer), touched or not.
    """
    used = parse_status_bytes(_read_status(), "VmData")
    if extra_bytes is None or used is None:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = used + extra_bytes
    limits = [limit for limit in (soft, hard, wanted) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(limits), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
