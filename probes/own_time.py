"""CPU time of this process with all its children: what of a machine's load is our own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

# Processes that are looked at; a measuring process, a tracing one and a driver's reader are three.
MAX_PROCESSES = 64
MOST_COUNTS = 3


def read_own_ticks(proc: Path = Path("/proc")) -> int:
    """Ticks of this process, of its children that ended, and of those that live (theirs included).

    A child that ends moves from the living to the ended, so that the sum never jumps; where one does so while they are
    counted it would be in neither, and they are counted again. Without the kernel's list of children
    (CONFIG_PROC_CHILDREN) the living ones are missing.
    """
    own, living = _count(lambda: sum(_read_ticks(proc, pid) for pid in _descendants(proc)))
    # Each is a whole number of ticks, of which seconds are the nearest float: cut off, the sum could go back by one.
    return round(own * os.sysconf("SC_CLK_TCK")) + int(living)


def read_ticks_of(pid: int, proc: Path = Path("/proc")) -> int:
    """The same of a process that this one started; 0 where it has ended."""
    return sum(_read_ticks(proc, each) for each in list_family(pid, proc))


def ask_own_seconds() -> float:
    """The same in seconds, where there is no /proc: of the living psutil tells. On Windows, which counts nothing of a
    child that has ended, and of a living one's ended children on macOS, what was there to be read last is all that is
    known of them."""
    return sum(_count(_ask_living_seconds))


def _count(count_living: Callable[[], float]) -> tuple[float, float]:
    """Seconds of this process and of its children that ended; and what is counted of those that live."""
    before = os.times()
    for _ in range(MOST_COUNTS):
        living = count_living()
        times = os.times()
        if times[2:4] == before[2:4]:
            break
        before = times
    return sum(times[:4]), living


def _ask_living_seconds() -> float:
    import psutil

    found = 0.0
    with suppress(psutil.Error):
        for child in psutil.Process().children(recursive=True)[:MAX_PROCESSES]:
            with suppress(psutil.Error):  # it ended meanwhile
                found += sum(child.cpu_times()[:4])
    return found


def parse_ticks(text: str) -> int:
    """utime, stime, cutime and cstime of a /proc/PID/stat (proc_pid_stat(5)); its name may hold blanks and brackets."""
    words = text.rpartition(")")[2].split()[11:15]
    return sum(int(word) for word in words) if len(words) == 4 and all(word.isdigit() for word in words) else 0


def list_family(pid: int, proc: Path = Path("/proc")) -> set[int]:
    """A process and all that it started, as far as the kernel tells."""
    return {pid, *_descendants(proc, pid)}


def _descendants(proc: Path, pid: int | None = None) -> Iterator[int]:
    """pid: whose; None: this process's."""
    waiting, seen = [str(pid or os.getpid())], 0
    while waiting and seen < MAX_PROCESSES:
        for child in _children(proc / waiting.pop()):
            waiting.append(child)
            seen += 1
            yield int(child)


def _children(process: Path) -> list[str]:
    """A child belongs to the thread that started it."""
    found: list[str] = []
    try:
        for task in sorted((process / "task").iterdir()):
            found += [word for word in (task / "children").read_text().split() if word.isdigit()]
    except OSError:
        pass  # it ended meanwhile, or the kernel keeps no list
    return found


def _read_ticks(proc: Path, pid: int) -> int:
    try:
        return parse_ticks((proc / str(pid) / "stat").read_text(errors="replace"))
    except OSError:
        return 0
