"""What others who hold cores do to a step (docs/decisions/0007-crowded-machines.md)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from app.advisor.recommendation import Interval, MachineLoad
from probes.hardware import Cpu, Load, Survey
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
# What was measured is taken for what it is unless others were plainly in the way, and are no more: so much of a core.
LEAST_RELIEF = 0.5
# What one sample waits at most for others to have had their turns: 18 ms were seen, at a load of five to ten on two
# cores, of a step of 1.6 ms.
TURNS_SECONDS = 0.05
# Below this pressure a wait for a core is an accident (probes.diagnose.crowding says the same).
PRESSURE_PERCENT = 25.0


@dataclass(frozen=True, slots=True)
class Crowd:
    """usable: cores that this process may use; online: all there are. others: cores that others keep busy, the
    hypervisor's other machines among them; None: not known. load: what was read. inside: of others, those that use what
    is usable: of the quota that limits it, as another program in this container does, or of its CPUs."""

    usable: float
    online: float
    others: float | None
    load: Load
    inside: float = 0.0

    @property
    def free(self) -> float | None:
        """Usable cores that nobody else holds, but for what always runs."""
        return None if self.others is None else self._free_beside(self.others)

    @property
    def background(self) -> float:
        """Of the cores that others hold, those that are taken for what always runs, and to be in nobody's way: of
        those inside alone where these are what limits."""
        if self.is_held_inside:
            return min(self.inside, _always_held(self.usable))
        return min(self.others or 0.0, _always_held(self.online))

    @property
    def is_held_inside(self) -> bool:
        """Whether what others hold of a quota, or of its CPUs, leaves less than what they hold of the machine."""
        if self.others is None or not self.inside:
            return False
        return self._free_inside(self.others) < self._free_outside(self.others)

    def _free_beside(self, others: float) -> float:
        return max(0.0, min(self._free_inside(others), self._free_outside(others)))

    def _free_inside(self, others: float) -> float:
        """Of others as many are taken to be inside as are now: a measurement does not tell them apart."""
        return self.usable - max(0.0, min(others, self.inside) - _always_held(self.usable))

    def _free_outside(self, others: float) -> float:
        return self.online - max(0.0, others - _always_held(self.online))

    def exposure(self, plan: Plan, others_then: float | None = 0.0, contained: float = 1.0) -> float:
        """From 0 (each thread has a core) to 1 (one thread has none), beyond what a time contains that was taken while
        others held that many cores; None: it contains what it met. contained: the share of what was met then that is
        in it. What runs on a device is left as it is."""
        if not plan.is_cpu or others_then is None:
            return 0.0
        more = self._exposure_now(self._threads(plan)) - contained * self.exposure_then(plan, others_then)
        return more if more >= LEAST_EXPOSURE else 0.0

    def relief(self, plan: Plan, others_then: float | None) -> float:
        """How much more exposed a step was that was taken while others held that many cores; from 0 to 1. Whether they
        have left is asked of the machine, not of the plan: of plans that took turns some would be told as they were
        then, beside others told as without them."""
        less = self._less_exposed(plan, others_then)
        return less if self._freed(plan, others_then) >= LEAST_RELIEF and less >= LEAST_EXPOSURE else 0.0

    def _freed(self, plan: Plan, others_then: float | None) -> float:
        """Cores; where nobody knows, as much as this plan would meet less."""
        if self.free is None or others_then is None:
            return self._less_exposed(plan, others_then)
        return self.free - self._free_beside(others_then)

    def _less_exposed(self, plan: Plan, others_then: float | None) -> float:
        return self.exposure_then(plan, others_then) - self._exposure_now(self._threads(plan))

    def relief_of(self, row: Measurement) -> float:
        """The same of a measurement."""
        return self.relief(row.plan, row.others_cores)

    def tells_of_others(self, row: Measurement) -> bool:
        """Others were in the way of a measurement: how much of its time is theirs nobody can tell, whether they have
        left or not. Its calm samples are no exception: a thread that waits for its core does not read the pace, which
        is as quick as ever once it has it back."""
        return self.exposure_then(row.plan, row.others_cores) >= LEAST_EXPOSURE

    def met_calm_cores(self, row: Measurement) -> bool:
        """Of its samples some are known to have."""
        return row.slowdown is not None and not self.tells_of_others(row)

    def tells_of_the_past(self, row: Measurement) -> bool:
        """It does, and they hold fewer cores now: asked of the machine, as for relief."""
        return self.tells_of_others(row) and self._freed(row.plan, row.others_cores) >= LEAST_EXPOSURE

    def may_tell_of_others(self, row: Measurement) -> bool:
        """The same, or nobody knows: those who held cores then may have been inside."""
        return self._all_inside(row.others_cores).tells_of_others(row)

    def _all_inside(self, others_then: float | None) -> Crowd:
        return self if others_then is None else replace(self, inside=others_then)

    def least_alone(self, seconds: float, plan: Plan, others_then: float | None) -> float:
        """Seconds that a step may take without others, of which one sample took so many while they held that many
        cores, maybe all of them inside: beyond what it waited for their turns it suffered as steps do."""
        worst: float = _worst(plan) ** self.exposed_at_most(plan, others_then)
        return max(seconds / WORST_OF_MANY, (seconds - TURNS_SECONDS) / worst)

    def exposed_at_most(self, plan: Plan, others_then: float | None) -> float:
        """Of a step that was taken while others held that many cores, maybe all of them inside; 0 where nobody
        knows."""
        return self._all_inside(others_then).exposure_then(plan, others_then)

    def still_met(self, plan: Plan, others_then: float | None) -> float:
        """From 0 to 1, how much of what a step met while others held that many cores it would meet now: 1 where they
        hold as many or more, 0 where it was not exposed then, is not now, or where nobody knows."""
        then, now = self.exposure_then(plan, others_then), self._exposure_now(self._threads(plan))
        return min(1.0, now / then) if min(then, now) >= LEAST_EXPOSURE else 0.0

    def exposure_then(self, plan: Plan, others_then: float | None) -> float:
        """Of a step that was taken while others held that many cores; 0 where nobody knows."""
        if not plan.is_cpu or others_then is None:
            return 0.0
        return self._without_a_core(self._threads(plan), self._free_beside(others_then))

    def _threads(self, plan: Plan) -> float:
        return self.usable if plan.threads is None else plan.threads

    def _exposure_now(self, threads: float) -> float:
        if self.free is not None:
            return self._without_a_core(threads, self.free)
        pressure = self.load.cpu_pressure_percent or 0.0
        return pressure / 100 if pressure >= PRESSURE_PERCENT and threads >= max(2, int(self.usable)) else 0.0

    def _without_a_core(self, threads: float, free: float) -> float:
        """What a quota below one core takes of a thread is nobody else's, and is in every time."""
        return min(1.0, max(0.0, min(threads, self.usable) - free))


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
    return Crowd(cpu.usable_cores or online, online, others, load, _inside(cpu, load) or 0.0)


def crowd_elsewhere(machine: Survey | None) -> Crowd | None:
    """Nobody, of a machine that is not here: by its cores it is told who held them. None where these are not known."""
    return None if machine is None or machine.cpu.logical_cores is None else crowd_of(machine)


def load_of(crowd: Crowd | None) -> MachineLoad | None:
    """What an answer tells of it."""
    if crowd is None:
        return None
    return MachineLoad(crowd.usable, crowd.others, crowd.load.steal_fraction, crowd.load.cpu_pressure_percent)


def _inside(cpu: Cpu, load: Load) -> float | None:
    """A quota's own where it is what limits; on more CPUs than it allows others leave room for it."""
    if cpu.usable_cores_limit == "cgroup" and load.quota_others_cores is not None:
        return load.quota_others_cores
    return load.allowed_others_cores if cpu.usable_cores == cpu.allowed_logical_cores else None


def in_company(seconds: Interval, plan: Plan, exposure: float) -> Interval:
    """A calm machine's time where others may take a core: they may leave again (low stays), and it may be as bad as it
    was ever seen (high); the median lies between, in ratio."""
    worst = _worst(plan) ** exposure
    return Interval(seconds.median * worst**0.5, seconds.low, seconds.high * worst)


def as_met(seconds: Interval, slow_share: float, slowdown: float, still: float) -> Interval:
    """A calm machine's time where others hold cores as they did while it was taken: they may leave again (low stays),
    the median is what steps took on average, slow ones among them, and it may be as bad as those (high). slow_share,
    slowdown: see Measurement. still: see still_met; a power, as exposure is one of the worst."""
    mean = 1 + slow_share * (slowdown - 1)
    return Interval(seconds.median * mean**still, seconds.low, seconds.high * slowdown**still)


def alone(seconds: Interval, plan: Plan, relief: float) -> Interval:
    """A time that was taken while others may have held a core, which they do no more: the other way round."""
    worst = _worst(plan) ** relief
    return Interval(seconds.median / worst**0.5, seconds.low / worst, seconds.high)


def _worst(plan: Plan) -> float:
    """How many times as long its steps take at an exposure of 1."""
    return WORST_OF_ONE if plan.threads == 1 else WORST_OF_MANY


def _always_held(cores: float) -> float:
    return BACKGROUND_CORES + BACKGROUND_SHARE * cores
