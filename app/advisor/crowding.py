"""What others who hold cores do to a step (docs/decisions/0007-crowded-machines.md)."""

from __future__ import annotations

from dataclasses import dataclass

from app.advisor.recommendation import Interval
from probes.hardware import Load, Survey
from probes.measurement import Measurement
from probes.workload.description import Plan

# A barrier waits for the thread that lost its core: two threads on a busy two-core machine took up to twenty times as
# long (our own measurements of the iris network). One thread waits for nobody; it shares its core with one other.
WORST_OF_MANY = 20.0
WORST_OF_ONE = 2.0
# What services and the kernel use on a machine that people call idle; it grows with the number of cores.
BACKGROUND_CORES = 0.25
BACKGROUND_SHARE = 0.02
# Load moves by this much of a core from one second to the next; less is no reason for anything.
LEAST_EXPOSURE = 0.1
# What was measured is taken for what it is unless others were plainly in its way, and are no more.
LEAST_RELIEF = 0.5
# Below this pressure a wait for a core is an accident (probes.diagnose.crowding says the same).
PRESSURE_PERCENT = 25.0


@dataclass(frozen=True, slots=True)
class Crowd:
    """usable: cores that this process may use; online: all there are. others: cores that others keep busy, the
    hypervisor's other machines among them; None: not known. load: what was read. inside: of others, those that use the
    quota that limits what is usable, as another program in this container does."""

    usable: float
    online: float
    others: float | None
    load: Load
    inside: float = 0.0

    @property
    def free(self) -> float | None:
        """Usable cores that nobody else holds."""
        return None if self.others is None else self._free_beside(self.others)

    def _free_beside(self, others: float) -> float:
        """Of others as many are taken to be inside the quota as are now: a measurement does not tell them apart."""
        inside = min(others, self.inside) - BACKGROUND_CORES - BACKGROUND_SHARE * self.usable
        outside = others - BACKGROUND_CORES - BACKGROUND_SHARE * self.online
        return max(0.0, min(self.usable - max(0.0, inside), self.online - max(0.0, outside)))

    def exposure(self, plan: Plan, others_then: float | None = 0.0) -> float:
        """From 0 (each thread has a core) to 1 (one thread has none), beyond what a time contains that was taken while
        others held that many cores; None: it contains what it met. What runs on a device is left as it is."""
        if not plan.is_cpu or others_then is None:
            return 0.0
        more = self._exposure_now(self._threads(plan)) - self.exposure_then(plan, others_then)
        return more if more >= LEAST_EXPOSURE else 0.0

    def relief(self, plan: Plan, others_then: float | None) -> float:
        """How much more exposed a step was that was taken while others held that many cores; from 0 to 1."""
        less = self.exposure_then(plan, others_then) - self._exposure_now(self._threads(plan))
        return less if less >= LEAST_RELIEF else 0.0

    def relief_of(self, row: Measurement) -> float:
        """The same of a measurement; 0 where some of its samples met calm cores, of which it tells then."""
        return self.relief(row.plan, row.others_cores) if row.slowdown is None else 0.0

    def still_met(self, plan: Plan, others_then: float | None) -> float:
        """From 0 to 1, how much of what a step met while others held that many cores it would meet now: 1 where they
        hold as many or more, 0 where it was not exposed then, is not now, or where nobody knows."""
        then, now = self.exposure_then(plan, others_then), self._exposure_now(self._threads(plan))
        return min(1.0, now / then) if min(then, now) >= LEAST_EXPOSURE else 0.0

    def exposure_then(self, plan: Plan, others_then: float | None) -> float:
        """Of a step that was taken while others held that many cores; 0 where nobody knows."""
        if not plan.is_cpu or others_then is None:
            return 0.0
        return _without_a_core(self._threads(plan), self._free_beside(others_then))

    def _threads(self, plan: Plan) -> float:
        return self.usable if plan.threads is None else plan.threads

    def _exposure_now(self, threads: float) -> float:
        if self.free is not None:
            return _without_a_core(threads, self.free)
        pressure = self.load.cpu_pressure_percent or 0.0
        return pressure / 100 if pressure >= PRESSURE_PERCENT and threads >= max(2, int(self.usable)) else 0.0


def crowd_of(survey: Survey) -> Crowd | None:
    """None where the number of cores is not known."""
    cpu, load = survey.cpu, survey.load
    online = cpu.logical_cores or cpu.physical_cores or cpu.usable_cores
    if not online:
        return None
    others = None
    if load.busy_fraction is not None:
        busy = max(0.0, load.busy_fraction - (load.own_busy_fraction or 0.0))
        others = online * min(1.0, busy + (load.steal_fraction or 0.0))
    inside = load.quota_others_cores if cpu.usable_cores_limit == "cgroup" else None
    return Crowd(cpu.usable_cores or online, online, others, load, inside or 0.0)


def in_company(seconds: Interval, plan: Plan, exposure: float) -> Interval:
    """A calm machine's time where others may take a core: they may leave again (low stays), and it may be as bad as it
    was ever seen (high); the median lies between, in ratio."""
    worst = (WORST_OF_ONE if plan.threads == 1 else WORST_OF_MANY) ** exposure
    return Interval(seconds.median * worst**0.5, seconds.low, seconds.high * worst)


def as_met(seconds: Interval, slow_share: float, slowdown: float, still: float) -> Interval:
    """A calm machine's time where others hold cores as they did while it was taken: they may leave again (low stays),
    the median is what steps took on average, slow ones among them, and it may be as bad as those (high). slow_share,
    slowdown: see Measurement. still: see still_met; a power, as exposure is one of the worst."""
    mean = 1 + slow_share * (slowdown - 1)
    return Interval(seconds.median * mean**still, seconds.low, seconds.high * slowdown**still)


def alone(seconds: Interval, plan: Plan, relief: float) -> Interval:
    """A time that was taken while others may have held a core, which they do no more: the other way round."""
    worst = (WORST_OF_ONE if plan.threads == 1 else WORST_OF_MANY) ** relief
    return Interval(seconds.median / worst**0.5, seconds.low / worst, seconds.high)


def _without_a_core(threads: float, free: float) -> float:
    return min(1.0, max(0.0, threads - free))
