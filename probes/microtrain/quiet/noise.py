"""How quiet the machine was while something was measured."""

from __future__ import annotations

import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probes.limits import QuotaUse, read_quota_use
from probes.own_time import read_own_ticks
from probes.reading import Root

# Others take so much of the cores we use that a barrier regularly waits for a thread without a core.
BUSY_CONTENTION = 0.15
# A hypervisor keeps so much of our time that medians are the neighbours' as much as ours.
BUSY_STEAL = 0.05
# Our main thread, ready to run, stood in a queue for so much of its time.
BUSY_WAITING = 0.05


@dataclass(frozen=True, slots=True)
class CpuTicks:
    """Seconds since boot, summed over all CPUs. None: the kernel does not say."""

    busy: float | None  # user, nice, system, irq, softirq; guests are inside user
    stolen: float | None
    total: float | None


@dataclass(frozen=True, slots=True)
class QueueTime:
    """Of the main thread since it began: seconds on a core, and seconds ready but without one."""

    ran: float
    waited: float


@dataclass(frozen=True, slots=True)
class Moment:
    """What is compared between a measurement's beginning and end."""

    clock: float
    ticks: CpuTicks
    own_cpu_seconds: float  # of this process and all its children
    involuntary_switches: int
    queue: QueueTime | None = None
    quota: QuotaUse | None = None


@dataclass(frozen=True, slots=True)
class Noise:
    """steal_fraction: of all CPU time. others_cores: cores that other processes kept busy, on average; taken_cores:
    those and what the hypervisor kept. contention: share of the cores we use that others want too. waiting_fraction:
    of the main thread's time, that it was ready and had no core, but for what our quota stopped. spread: of the
    measured points, when it is known. own_cpu_seconds: of this process and all its children since it began."""

    load_average: float | None
    steal_fraction: float | None
    others_cores: float | None
    contention: float | None
    involuntary_switches_per_second: float
    spread: float | None = None
    waiting_fraction: float | None = None
    taken_cores: float | None = None
    own_cpu_seconds: float | None = None

    @property
    def why_busy(self) -> str | None:
        """A sentence when the measurement should not be trusted to a few percent."""
        if self.contention is not None and self.contention > BUSY_CONTENTION:
            return f"Other processes wanted {self.contention:.0%} of the cores that were measured on."
        if self.waiting_fraction is not None and self.waiting_fraction > BUSY_WAITING:
            return f"Other processes made the measurement wait for a core for {self.waiting_fraction:.0%} of its time."
        if self.steal_fraction is not None and self.steal_fraction > BUSY_STEAL:
            return f"The hypervisor kept {self.steal_fraction:.0%} of the CPU time for other machines."
        return None

    def figures(self) -> dict[str, float | None]:
        """Numbers only, as a profile keeps them; busy is 0 or 1."""
        return {
            "load_average": self.load_average,
            "steal_fraction": self.steal_fraction,
            "spread": self.spread,
            "contention": self.contention,
            "waiting_fraction": self.waiting_fraction,
            "busy": float(self.why_busy is not None),
        }

    def to_json(self) -> dict[str, Any]:
        return {
            **self.figures(),
            "others_cores": self.others_cores,
            "taken_cores": self.taken_cores,
            "own_cpu_seconds": self.own_cpu_seconds,
            "involuntary_switches_per_second": self.involuntary_switches_per_second,
            "busy": self.why_busy is not None,
            "reason": self.why_busy,
        }


def read_moment(proc: Path = Path("/proc")) -> Moment:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    own = read_own_ticks(proc) / os.sysconf("SC_CLK_TCK")
    quota = read_quota_use(Root(proc.parent))
    return Moment(time.monotonic(), read_ticks(proc), own, usage.ru_nivcsw, read_queue(proc), quota)


def read_queue(proc: Path = Path("/proc")) -> QueueTime | None:
    try:
        return parse_queue((proc / "self/schedstat").read_text())
    except OSError:
        return None


def parse_queue(text: str) -> QueueTime | None:
    """Nanoseconds on a core, nanoseconds waiting for one, turns (kernel: Documentation/scheduler/sched-stats.rst)."""
    fields = text.split()
    if len(fields) < 2 or not all(field.isdigit() for field in fields[:2]):
        return None
    return QueueTime(int(fields[0]) * 1e-9, int(fields[1]) * 1e-9)


def read_ticks(proc: Path = Path("/proc")) -> CpuTicks:
    try:
        text = (proc / "stat").read_text()
    except OSError:
        return CpuTicks(None, None, None)
    return parse_ticks(text, os.sysconf("SC_CLK_TCK"))


def parse_ticks(text: str, ticks_per_second: int) -> CpuTicks:
    """The `cpu` line of /proc/stat: user nice system idle iowait irq softirq steal … (proc_stat(5))."""
    fields = text.partition("\n")[0].split()
    if len(fields) < 9 or fields[0] != "cpu" or not all(field.isdigit() for field in fields[1:9]):
        return CpuTicks(None, None, None)
    user, nice, system, idle, iowait, irq, softirq, steal = (int(field) / ticks_per_second for field in fields[1:9])
    busy = user + nice + system + irq + softirq
    return CpuTicks(busy, steal, busy + idle + iowait + steal)


def noise_between(before: Moment, after: Moment, threads: int, spread: float | None = None) -> Noise:
    """threads: the most CPU threads that the measurement used."""
    seconds = max(after.clock - before.clock, 1e-9)
    total = _difference(before.ticks.total, after.ticks.total)
    busy = _difference(before.ticks.busy, after.ticks.busy)
    stolen = _difference(before.ticks.stolen, after.ticks.stolen)
    others = contention = None
    if total and busy is not None:
        online = total / seconds
        others = max(0.0, busy - (after.own_cpu_seconds - before.own_cpu_seconds)) / seconds
        wanted = max(0.0, others + threads - online, _wanted_in_quota(before, after, threads))
        contention = min(1.0, wanted / threads)
    return Noise(
        load_average=read_load_average(),
        steal_fraction=stolen / total if total and stolen is not None else None,
        others_cores=others,
        contention=contention,
        involuntary_switches_per_second=(after.involuntary_switches - before.involuntary_switches) / seconds,
        spread=spread,
        waiting_fraction=_waiting_fraction(before, after),
        taken_cores=None if others is None else others + (stolen or 0.0) / seconds,
        own_cpu_seconds=after.own_cpu_seconds,
    )


def _wanted_in_quota(before: Moment, after: Moment, threads: int) -> float:
    """Cores that we use and that others want who share our quota. Threads of ours beyond it are nobody else's doing."""
    if before.quota is None or after.quota is None:
        return 0.0
    own = after.own_cpu_seconds - before.own_cpu_seconds
    others = max(0.0, after.quota.seconds - before.quota.seconds - own) / max(after.clock - before.clock, 1e-9)
    return max(0.0, others + min(threads, after.quota.cores) - after.quota.cores)


def _waiting_fraction(before: Moment, after: Moment) -> float | None:
    if before.queue is None or after.queue is None:
        return None
    waited, ran = after.queue.waited - before.queue.waited, after.queue.ran - before.queue.ran
    waited = max(0.0, waited - _stopped_by_quota(before, after))
    return waited / (waited + ran) if waited + ran > 0 else 0.0


def _stopped_by_quota(before: Moment, after: Moment) -> float:
    """Seconds that a quota stopped us: a thread that it takes from its core counts as waiting for one, though nobody
    else is there (who shares the quota is told by its use). Of several threads the sum, so that others' part is rather
    told too small."""
    if before.quota is None or after.quota is None:
        return 0.0
    return max(0.0, _difference(before.quota.stopped_seconds, after.quota.stopped_seconds) or 0.0)


def read_load_average() -> float | None:
    """Processes running or waiting for a core, over the last minute; our own threads are among them."""
    try:
        return os.getloadavg()[0]
    except OSError:
        return None


def _difference(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else after - before
