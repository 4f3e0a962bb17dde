"""How busy the machine is now, and how much of its time a hypervisor gives to others.

The kernel counts CPU time since boot (proc(5), /proc/stat); a fraction is of what passed between two readings in this
process. The first reading therefore has none: `measure_load` takes two.
"""

import os
import threading
import time
from collections import deque
from dataclasses import dataclass, replace

from probes.cpusets import iterate_cpus
from probes.hardware import Load
from probes.limits import read_affinity, read_quota_use
from probes.own_time import ask_own_seconds, read_own_ticks
from probes.reading import Root

# What surveys tell of: a burst of a second (the kernel tidying up after a large process) holds no core from a training.
SURVEYED_SECONDS = 10.0
# Between readings closer than this the kernel's ticks (10 ms a CPU) are too coarse; the last fractions stand.
SHORTEST_SECONDS = 0.5
FIRST_READING = "CPU time is counted since boot: how busy the machine is now shows from the second reading on"
CAPTURED = "a captured machine was read once, so how busy it was cannot be told"


@dataclass(frozen=True, slots=True)
class AllowedTimes:
    """Ticks since boot of the CPUs that this process may use (a set): all, and those that somebody took."""

    cpus: int
    taken: int
    total: int


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """Ticks since boot over all CPUs; `at` is when, by the monotonic clock. own: this process's and its children's;
    None where it is not this machine. quota_seconds: of CPU time in the cgroup whose quota rules, theirs and ours; None
    without a quota. allowed: None where this process may use all CPUs."""

    busy: int
    steal: int
    total: int
    at: float
    own: int | None = None
    quota_seconds: float | None = None
    allowed: AllowedTimes | None = None


class LoadMeter:
    """Remembers readings, so that the next one has something to subtract: the newest that is so many seconds old, or
    the oldest where all are newer."""

    def __init__(self, seconds: float = 0.0) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._readings: deque[CpuTimes] = deque()
        self._fractions = Load()
        self._lost = 0  # own ticks of processes that ended while nobody waited for them

    def update(self, now: CpuTimes | None) -> Load:
        """The fractions between that reading and this one."""
        with self._lock:
            readings = self._readings
            if now is None or (readings and now.at - readings[-1].at < SHORTEST_SECONDS):
                return self._fractions
            now = self._without_loss(now)
            readings.append(now)
            while len(readings) > 2 and now.at - readings[1].at >= self._seconds:
                readings.popleft()
            if len(readings) > 1:
                self._fractions = compare_times(readings[0], now)
            return self._fractions

    def _without_loss(self, now: CpuTimes) -> CpuTimes:
        """What was our own stays so, though the process that computed it is gone and counted nowhere."""
        before = self._readings[-1].own if self._readings else None
        if now.own is None or before is None:
            return now
        self._lost += max(before - now.own - self._lost, 0)
        return replace(now, own=now.own + self._lost)


_last, _lately = LoadMeter(), LoadMeter(SURVEYED_SECONDS)


def read_load(root: Root, *, lately: bool = False) -> Load:
    """Fractions are since the last such reading in this process, or of the last ten seconds and somewhat more (lately);
    None in the first, and of a captured machine."""
    meter = _lately if lately else _last
    fractions = meter.update(_read_times(root)) if root.is_host else Load()
    return replace(
        fractions,
        load_average=_read_load_average(root),
        cpu_pressure_percent=parse_pressure(root.read("/proc/pressure/cpu") or ""),
    )


def explain_load(root: Root, load: Load) -> str | None:
    """Why there are no fractions; None where there are."""
    if load.busy_fraction is not None:
        return None
    return FIRST_READING if root.is_host else CAPTURED


def measure_load(root: Root, seconds: float) -> Load:
    """Waits, so that the fractions are of the time from now on; for whoever cannot wait for a second survey."""
    before = _read_times(root)
    time.sleep(seconds)
    after = _read_times(root)
    fractions = compare_times(before, after) if before and after else Load()
    return replace(
        fractions,
        load_average=_read_load_average(root),
        cpu_pressure_percent=parse_pressure(root.read("/proc/pressure/cpu") or ""),
    )


def compare_times(before: CpuTimes, after: CpuTimes) -> Load:
    """No fractions where no time has passed, or a counter went backwards (a CPU that went offline takes its own)."""
    total, busy, steal = after.total - before.total, after.busy - before.busy, after.steal - before.steal
    if total <= 0 or not 0 <= busy <= total or not 0 <= steal <= total:
        return Load()
    own = None if before.own is None or after.own is None else min(max(after.own - before.own, 0), busy) / total
    return Load(
        steal_fraction=steal / total,
        busy_fraction=busy / total,
        interval_seconds=after.at - before.at,
        own_busy_fraction=own,
        quota_others_cores=_others_in_quota(before, after),
        allowed_others_cores=_others_on_allowed(before, after),
    )


def _others_in_quota(before: CpuTimes, after: CpuTimes) -> float | None:
    """Cores that others in our cgroup kept busy; None where not both readings tell."""
    if before.quota_seconds is None or after.quota_seconds is None or before.own is None or after.own is None:
        return None
    used, ticks = after.quota_seconds - before.quota_seconds, max(after.own - before.own, 0)
    if used < 0 or after.at <= before.at:  # less than before: it is another cgroup now
        return None
    return max(used - ticks / os.sysconf("SC_CLK_TCK"), 0.0) / (after.at - before.at)


def _others_on_allowed(before: CpuTimes, after: CpuTimes) -> float | None:
    """Cores that others, other machines among them, took of the CPUs that this process may use; all that is ours runs
    there, too."""
    then, now = before.allowed, after.allowed
    if then is None or now is None or then.cpus != now.cpus or before.own is None or after.own is None:
        return None
    total, taken, own = now.total - then.total, now.taken - then.taken, max(after.own - before.own, 0)
    return max(taken - own, 0) / total * now.cpus.bit_count() if 0 <= taken <= total and total > 0 else None


def _read_times(root: Root) -> CpuTimes | None:
    if not root.is_linux:
        return _ask_times()
    text = root.read("/proc/stat", 1 << 20) or ""
    times = parse_times(text, time.monotonic())
    if times is None or not root.is_host:
        return times
    use = read_quota_use(root)
    allowed, seconds = parse_allowed(text, read_affinity(root)), None if use is None else use.seconds
    return replace(times, own=read_own_ticks(), quota_seconds=seconds, allowed=allowed)


def parse_times(text: str, at: float) -> CpuTimes | None:
    """The `cpu` line, of all CPUs."""
    ticks = next((_parse_ticks(line) for line in text.splitlines() if line.startswith("cpu ")), None)
    if ticks is None:
        return None
    total, steal = sum(ticks), ticks[7]
    return CpuTimes(total - ticks[3] - ticks[4] - steal, steal, total, at)


def parse_allowed(text: str, cpus: int | None) -> AllowedTimes | None:
    """The lines of these CPUs (a set; None: all), as `cpu7`. None where they are all that have one, or where one has
    none: a container's file may number other CPUs than the kernel does."""
    if cpus is None or cpus.bit_count() >= text.count("\ncpu"):
        return None
    lines = {line.partition(" ")[0]: line for line in text.splitlines() if line.startswith("cpu")}
    found = [_parse_ticks(lines.get(f"cpu{number}", "")) for number in iterate_cpus(cpus)]
    ticks = [each for each in found if each is not None]
    if not ticks or len(ticks) < len(found):
        return None
    total = sum(map(sum, ticks))
    return AllowedTimes(cpus, total - sum(each[3] + each[4] for each in ticks), total)


def _parse_ticks(line: str) -> list[int] | None:
    """user, nice, system, idle, iowait, irq, softirq, steal; guests' time is within user's."""
    words = line.split()[1:9]
    if len(words) < 4 or not all(word.isascii() and word.isdigit() and len(word) < 20 for word in words):
        return None
    return [int(word) for word in words] + [0] * (8 - len(words))


def _ask_times() -> CpuTimes:
    """macOS and Windows: psutil counts in seconds, and knows of no steal."""
    import psutil

    times = psutil.cpu_times()
    total = sum(times[:8])
    own = int(100 * ask_own_seconds())
    return CpuTimes(int(100 * (total - times.idle)), 0, int(100 * total), time.monotonic(), own)


def _read_load_average(root: Root) -> float | None:
    if not root.is_linux:
        return os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return parse_load_average(root.read("/proc/loadavg") or "")


def parse_load_average(text: str) -> float | None:
    """The last minute's mean, first of /proc/loadavg's words."""
    return _parse_decimal((text.split() or [""])[0])


def parse_pressure(text: str) -> float | None:
    """avg10 of `some avg10=1.23 avg60=…`: percent of the last 10 s in which something waited for a CPU."""
    words = next((line.split() for line in text.splitlines() if line.startswith("some ")), [])
    percent = _parse_decimal(next((word[6:] for word in words if word.startswith("avg10=")), ""))
    return percent if percent is not None and percent <= 100 else None


def _parse_decimal(text: str) -> float | None:
    whole, _, fraction = text.partition(".")
    plain = whole.isascii() and whole.isdigit() and len(text) < 16 and (not fraction or (fraction + "0").isdigit())
    return float(text) if plain and text.isascii() else None
