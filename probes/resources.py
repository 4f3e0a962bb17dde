"""What this process may take beside cores and memory: shared memory, locked memory, open files."""

import os
import re
from collections.abc import Callable

from probes.hardware import Limits
from probes.memory import parse_meminfo
from probes.reading import Root, parse_int
from probes.storage import find_mount, read_mounts

SHARED_MEMORY = "/dev/shm"
# tmpfs(5): without a size it holds half of the machine's memory.
TMPFS_DEFAULT_FRACTION = 0.5
_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}

Bound = tuple[int | None, bool | None]  # a limit, and whether there is none; None, None where it is not known


def read_resources(root: Root) -> Limits:
    """Asked of the kernel on this machine, read from /proc of a captured one."""
    total, free = _ask_shared_memory() if root.is_host else (read_shared_memory(root), None)
    locked, files, most_files = _ask_limits() if root.is_host else parse_limits(root.read("/proc/self/limits") or "")
    return Limits(
        shared_memory_total_bytes=total,
        shared_memory_free_bytes=free,
        locked_memory_bytes=locked[0],
        locked_memory_unlimited=locked[1],
        open_files=files[0],
        open_files_maximum=most_files[0],
    )


def explain_resources(limits: Limits) -> str | None:
    """What is not known of them; None when all that matters is."""
    unknown = []
    if limits.shared_memory_total_bytes is None:
        unknown.append("the size of /dev/shm")
    if limits.locked_memory_bytes is None and limits.locked_memory_unlimited is None:
        unknown.append("the limits on locked memory and open files")
    return f"nothing tells {' or '.join(unknown)}" if unknown else None


def _ask_shared_memory() -> tuple[int | None, int | None]:
    try:
        facts = os.statvfs(SHARED_MEMORY)
    except (OSError, AttributeError):  # Windows has no statvfs
        return None, None
    return facts.f_blocks * facts.f_frsize, facts.f_bavail * facts.f_frsize


def read_shared_memory(root: Root) -> int | None:
    """The size of a captured machine's /dev/shm, from its mount's options."""
    mount = find_mount(read_mounts(root), SHARED_MEMORY)
    if mount is None or mount.point != SHARED_MEMORY or mount.filesystem != "tmpfs":
        return None
    table = root.read("/proc/self/mountinfo", 1 << 20) or root.read("/proc/self/mounts", 1 << 20)
    memory = parse_meminfo(root.read("/proc/meminfo") or "").get("MemTotal")
    return parse_tmpfs_size(table or root.read("/proc/mounts", 1 << 20) or "", SHARED_MEMORY, memory)


def parse_tmpfs_size(table: str, point: str, memory_bytes: int | None) -> int | None:
    """Bytes that the last tmpfs on `point` holds, by /proc/mounts or /proc/self/mountinfo."""
    rows = [line for line in table.splitlines() if f" {point} " in line and "tmpfs" in line.split()]
    if not rows:
        return None
    match = re.search(r"[\s,]size=(\d{1,18})([kmg%]?)(?:[\s,]|$)", rows[-1], re.ASCII | re.IGNORECASE)
    if match is None:
        unreadable = "size=" in rows[-1]
        return None if memory_bytes is None or unreadable else int(memory_bytes * TMPFS_DEFAULT_FRACTION)
    number, unit = int(match[1]), match[2].lower()
    if unit == "%":
        return None if memory_bytes is None else memory_bytes * number // 100
    return number * _UNITS[unit]


def _ask_limits() -> tuple[Bound, Bound, Bound]:
    """Locked memory and open files now, and open files at most."""
    try:
        import resource
    except ImportError:  # Windows has neither limit
        return (None, None), (None, None), (None, None)
    bound = _bounded_by(resource.RLIM_INFINITY)
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    return bound(resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]), bound(files[0]), bound(files[1])


def _bounded_by(infinity: int) -> Callable[[int], Bound]:
    return lambda value: (None, True) if value == infinity or value < 0 else (value, False)


def parse_limits(text: str) -> tuple[Bound, Bound, Bound]:
    """/proc/self/limits: `Max locked memory  8388608  8388608  bytes`, soft and hard."""
    rows = {name: _find_row(text, name) for name in ("Max locked memory", "Max open files")}
    locked, files = rows["Max locked memory"], rows["Max open files"]
    return _parse_bound(locked, 0), _parse_bound(files, 0), _parse_bound(files, 1)


def _find_row(text: str, name: str) -> list[str]:
    line = next((line for line in text.splitlines() if line.startswith(name)), "")
    return line.removeprefix(name).split()


def _parse_bound(words: list[str], place: int) -> Bound:
    if len(words) <= place:
        return None, None
    if words[place] == "unlimited":
        return None, True
    number = parse_int(words[place])
    return (number, False) if number is not None and number >= 0 else (None, None)
