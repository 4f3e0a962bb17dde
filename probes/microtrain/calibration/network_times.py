"""Times one micro-network's steps under every plan, and the operations inside them."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import NamedTuple, TypeVar

from probes.context import Context
from probes.issued import Issued
from probes.measurement import Timing
from probes.microtrain.calibration.networks import MICRO_NETWORKS, MicroNetwork
from probes.microtrain.calibration.operation_clock import ClockedStep, clock_step, merge_costs, record_step, still_grows
from probes.microtrain.calibration.plan_shares import PlanShares
from probes.microtrain.measuring.workbench import StepRun, Workbench
from probes.microtrain.processes.footprint import count_page_faults, keep_freed_memory
from probes.microtrain.quiet.calm import Calm
from probes.microtrain.quiet.noise import QueueTime, read_queue
from probes.microtrain.quiet.pace import read_pace
from probes.microtrain.quiet.resting import Rest, leaves_threads
from probes.microtrain.timing import significant
from probes.microtrain.traces.recording import Record
from probes.workload.description import Mode, Plan

T = TypeVar("T")

CLOCKED_SHARE = 0.7  # of the time is for clocking operations
MOST_ROUNDS, LARGE_ROUNDS = 12, 2
# After another plan's turn a small step takes a third longer, the next a tenth, the fifth no more than any.
LEAD_IN_SECONDS, CLOCKING_SECONDS = 0.005, 0.006
LEAST_CLOCKED = 2  # steps a turn
GROWING_STEPS = 2  # until a heap that keeps what is freed has grown
MOST_GROWING = 3  # more of those clocked, where an operation has met it growing in each
MOST_TIMED, TIMED_SECONDS = 12, 0.006
WARM_UP_STEPS = 2  # make what lives from step to step
# The first 20 ms of steps of a process take 1.2 to 2 times as long as those after them (mlp-tiny: 492 and 822 us, then
# 254), and most plans and batch sizes have one turn.
SETTLING_SECONDS = 0.03
LONG_SECONDS = 0.02  # one such step does for what others need two for
# Every batch size is to be clocked once under every plan, for which a network may take so many times its share of the
# time more: visits that would have come again are left out for it.
OVERDRAFT = 0.5
LONG_STEPS = 5  # that one plan and batch size takes at least, timed and clocked, where steps are long


Calms = Mapping[int | None, Calm]  # by threads


class StepTime(NamedTuple):
    """page_faults: of a step, on average."""

    batch_size: int
    plan: Plan
    seconds: Timing
    page_faults: float


@dataclass(frozen=True)
class NetworkTimes:
    """queue: how long the process that measured ran and waited for a core. slowness: by plan's key, how many times as
    long as the first plan's a step took. disturbed: share of plans and batch sizes that had no turn on a calm machine.
    missed: of what could be clocked, the share that the time did not do for. paces: by threads, the quickest
    reading."""

    steps: list[StepTime]
    contexts: list[Context]
    queue: QueueTime | None
    slowness: dict[object, float] = field(default_factory=dict)
    disturbed: float = 0.0
    missed: float = 0.0
    paces: dict[int | None, float] = field(default_factory=dict)


def measure_network(
    name: str,
    mode: Mode,
    plans: Sequence[Plan],
    deadline: float,
    slowness: Mapping[object, float],
    paces: Mapping[int | None, float],
) -> NetworkTimes:
    """Until the deadline (time.perf_counter), but the smallest batch under every plan at least once, and half as much
    longer for the others to be clocked, unless the plan is too slow for its share (plan_shares; slowness: in networks
    before this one). paces: by threads, the quickest reading before this one. Changes how this process allocates from
    then on (footprint.keep_freed_memory): to be run in one of its own."""
    network = next(network for network in MICRO_NETWORKS if network.name == name)
    calms = {plan.threads: Calm(paces.get(plan.threads)) for plan in plans if plan.is_cpu}
    return _NetworkRun(network, mode, plans, deadline, slowness, calms).measure()


class _NetworkRun:
    def __init__(
        self,
        network: MicroNetwork,
        mode: Mode,
        plans: Sequence[Plan],
        deadline: float,
        slowness: Mapping[object, float],
        calms: Calms,
    ) -> None:
        self._calms = calms
        self._network = network
        self._mode = mode
        self._plans = plans
        self._missed = 0.0
        self._last: Plan | None = None  # that had a turn
        self._rest = Rest()
        self._begun, self._deadline = time.perf_counter(), deadline
        self._shares = PlanShares(plans, deadline - self._begun, slowness)
        self._bench = Workbench(network.workload(mode), frozenset(plan.device for plan in plans))

    def measure(self) -> NetworkTimes:
        now = time.perf_counter()
        runs = [StepRun(self._bench, plan, size) for size in self._network.sizes(self._mode) for plan in self._plans]
        timers = [StepTimer(run, self._calms.get(run.plan.threads)) for run in runs]
        timers[0].settle()
        end = now + (self._deadline - now) * (1 - CLOCKED_SHARE)
        for round_number in range(MOST_TIMED if self._network.timed else 0):
            # Operations say more of long steps than how long these take as a whole, for which the time may not do.
            for place, timer in enumerate(in_turn(timers, len(self._plans))):
                first = round_number == 0
                if (first and place < len(self._plans)) or time.perf_counter() < end:
                    self._time(timer, LONG_STEPS if first else 1)
        steps = [
            StepTime(timer.run.batch_size, timer.run.plan, timing, timer.faults)
            for timer in timers
            if (timing := timer.timing()) is not None
        ]
        if any(plan.is_cpu for plan in self._plans):
            keep_freed_memory()  # fresh pages are counted and priced apart
        contexts, clocks = self._clock(runs)
        turns: list[StepTimer | StepClock] = [timer for timer in timers if timer.timing() is not None]
        turns += clocks
        disturbed = sum(not turn.was_calm for turn in turns) / max(1, len(turns))
        paces = {threads: calm.best for threads, calm in self._calms.items() if calm.best is not None}
        return NetworkTimes(steps, contexts, read_queue(), self._shares.slowness(), disturbed, self._missed, paces)

    def _time(self, timer: StepTimer, steps: int) -> None:
        plan, size = timer.run.plan, timer.run.batch_size
        if self._shares.affords(plan, size, steps):
            self._rest_before(plan)
            with self._shares.spending(plan):
                timer.take()
            if timer.step_seconds is not None:
                self._shares.learn(plan, size, timer.step_seconds)

    def _clock(self, runs: Sequence[StepRun]) -> tuple[list[Context], list[StepClock]]:
        """What each operation takes inside the steps, and who clocked them; rounds over all plans and batches until the
        time is over. The first may take longer, and the smallest batch under every plan is clocked in any case."""
        overdrawn = self._deadline + OVERDRAFT * (self._deadline - self._begun)
        records: dict[object, tuple[list[Record], Issued]] = {}
        named = (self._network.name, self._mode)
        clocks = [StepClock(*named, run, records, self._calms[run.plan.threads]) for run in runs if run.plan.is_cpu]
        large = self._network.large_batch
        rare = [
            StepClock(*named, StepRun(self._bench, plan, large), records, self._calms[plan.threads])
            for plan in self._plans
            if plan.is_cpu and large
        ]
        for round_number in range(MOST_ROUNDS):
            first = round_number == 0
            turns = [*clocks, *(rare if round_number < LARGE_ROUNDS else ())]
            for place, clock in enumerate(in_turn(turns, len(self._plans))):
                owed = first and place < len(self._plans)
                if time.perf_counter() > (overdrawn if first else self._deadline) and not owed:
                    break
                if self._shares.affords(clock.run.plan, clock.run.batch_size, LEAST_CLOCKED):
                    self._rest_before(clock.run.plan)
                    with self._shares.spending(clock.run.plan):
                        clock.take()
                    self._let_grow(clock)
                    if clock.step_seconds is not None:  # of a network that is not timed, nothing else says it
                        self._shares.learn(clock.run.plan, clock.run.batch_size, clock.step_seconds)
        found = [(context, clock) for clock in (*clocks, *rare) if (context := clock.context()) is not None]
        self._missed = self._share_missed([*clocks, *rare])
        return [context for context, _ in found], [clock for _, clock in found]

    def _let_grow(self, clock: StepClock) -> None:
        """Until no operation has met the heap growing in each of the clock's steps, as long as there is time."""
        plan, size = clock.run.plan, clock.run.batch_size
        for _ in range(MOST_GROWING):
            is_late = time.perf_counter() > self._deadline or not self._shares.affords(plan, size, 1)
            if is_late or not clock.still_grows:
                break
            with self._shares.spending(plan):
                clock.take_grown()

    def _rest_before(self, plan: Plan) -> None:
        """Threads of the plan that ran last hold the cores yet; one of as many or more takes them into its own."""
        last, self._last = self._last, plan
        if last is not None and leaves_threads(last) and (plan.threads or 0) < (last.threads or 0):
            self._rest.wait_for(os.getpid())

    def _share_missed(self, clocks: Sequence[StepClock]) -> float:
        """Without those that would not have run with more time, either."""
        late = sum(
            not clock.had_turn and self._shares.affords(clock.run.plan, clock.run.batch_size, LEAST_CLOCKED)
            for clock in clocks
        )
        return late / max(1, late + sum(clock.had_turn for clock in clocks))


def in_turn(turns: Sequence[T], plans: int) -> list[T]:
    """The smallest batch first, then the other sizes as chance has it, and the plans of each: what the time does not do
    for in one calibration, another has, and a profile is the mean of several. turns: size by size, of so many plans
    each, which stay together behind the first, by which others are judged (plan_shares)."""
    sizes = [list(turns[start : start + plans]) for start in range(0, len(turns), plans)]
    others = sizes[1:]
    random.shuffle(others)
    for size in others:
        size[1:] = random.sample(size[1:], len(size) - 1)
    return [turn for size in (*sizes[:1], *others) for turn in size]


class StepTimer:
    """Times whole steps under one plan, and counts their page faults. What fails once is left out.

    calm: of as many threads; None: nobody reads how quick the cores are."""

    def __init__(self, run: StepRun, calm: Calm | None = None) -> None:
        self.run = run
        self._calm = calm
        self._samples: list[float] = []  # seconds a step, one a turn
        self._readings: list[float | None] = []  # of the pace, one a turn
        self._faults: list[float] = []
        self._failed = False
        self.step_seconds: float | None = None  # about, as last seen

    def settle(self) -> None:
        """Steps that nobody times, for a process that has run none."""
        try:
            with self.run.setting():
                repeat(lambda: self.run(1), SETTLING_SECONDS)
        except Exception:  # noqa: BLE001 - a network that does not run under a plan is no point of it
            self._failed = True

    def take(self) -> None:
        """Some steps, after others that warm up what the plan that ran last left cold."""
        if self._failed:
            return
        try:
            with self.run.setting():
                self.run.prepared()
                if not self._samples:  # not of the lead-in: kernels are made (in bf16 in up to 12 ms) and memory taken
                    repeat(lambda: self.run(1), 0.0, WARM_UP_STEPS)
                begun = time.perf_counter()
                warm = repeat(lambda: self.run(1), LEAD_IN_SECONDS)
                steps = max(round(TIMED_SECONDS * warm / (time.perf_counter() - begun)), 1)
                before, begun = count_page_faults(), time.perf_counter()
                self.run(steps)
                self._samples.append((time.perf_counter() - begun) / steps)
                self._faults.append((count_page_faults() - before) / steps)
                self._readings.append(_read(self._calm))
                self.step_seconds = self._samples[-1]  # of no step that made what the first of a process make
        except Exception:  # noqa: BLE001 - a network that does not run under a plan is no point of it
            self._failed = True

    def timing(self) -> Timing | None:
        """What it takes on a calm machine."""
        samples = (self._calm or Calm()).choose(self._samples, self._readings)
        return Timing.from_samples([significant(sample, 4) for sample in samples]) if samples else None

    @property
    def was_calm(self) -> bool:
        """In one turn at least."""
        return (self._calm or Calm()).count(self._readings) > 0

    @property
    def faults(self) -> float:
        """A step's, on average."""
        return significant(fmean(self._faults), 4)


class StepClock:
    """Clocks one network's step under one plan, again and again. What fails once is left out.

    records: what steps run and what issues it, shared with the clocks of plans that differ in their threads alone.
    calm: of as many threads.
    """

    def __init__(
        self, network: str, mode: Mode, run: StepRun, records: dict[object, tuple[list[Record], Issued]], calm: Calm
    ) -> None:
        self._network = network
        self._mode = mode
        self.run = run
        self._key = (run.batch_size, run.plan.precision)
        self._records = records
        self._clocked: list[list[ClockedStep]] = []  # of each turn, its steps
        self._calm = calm
        self._readings: list[float | None] = []  # of the pace, one a turn
        self._failed = False
        self.step_seconds: float | None = None  # about, as last seen, with what clocking it costs

    def take(self) -> None:
        """Some steps, as in a long run: caches, allocator and branch predictors belonged to whoever ran last."""
        if self._failed:
            return
        try:
            with self.run.setting():
                step = self.run.prepared()
                if self._key not in self._records:
                    self._records[self._key] = record_step(step)
                repeat(step, LEAD_IN_SECONDS, 1 if self._clocked else GROWING_STEPS)
                turn: list[ClockedStep] = []
                begun = time.perf_counter()
                clocked = repeat(lambda: turn.append(clock_step(step)), CLOCKING_SECONDS, LEAST_CLOCKED)
                self.step_seconds = (time.perf_counter() - begun) / clocked
                self._clocked.append(turn)
                self._readings.append(_read(self._calm))
        except Exception:  # noqa: BLE001 - a network that does not run under a plan is no point of it
            self._failed = True

    def take_grown(self) -> None:
        """One step more of the last turn, whose heap has grown by those before it."""
        try:
            with self.run.setting():
                self._clocked[-1].append(clock_step(self.run.prepared()))
        except Exception:  # noqa: BLE001 - a network that does not run under a plan is no point of it
            self._failed = True

    @property
    def still_grows(self) -> bool:
        """In every step so far an operation found fresh pages."""
        return not self._failed and still_grows([step for turn in self._clocked for step in turn])

    @property
    def had_turn(self) -> bool:
        """Be it one that failed."""
        return self._failed or bool(self._clocked)

    @property
    def was_calm(self) -> bool:
        """In one turn at least."""
        return self._calm.count(self._readings) > 0

    def context(self) -> Context | None:
        """What its operations take on a calm machine."""
        records, issued = self._records.get(self._key, ((), None))
        turns = [median(sum(step.seconds) for step in turn) for turn in self._clocked]
        steps = [
            step._replace(seconds=[seconds * factor for seconds in step.seconds])
            for place, factor in self._calm.weigh(turns, self._readings)
            for step in self._clocked[place]
        ]
        operations = merge_costs(records, steps)
        run = self.run
        return Context(self._network, run.batch_size, self._mode, run.plan, operations, issued) if operations else None


def _read(calm: Calm | None) -> float | None:
    return None if calm is None else calm.learn((read_pace(),))


def repeat(action: Callable[[], object], seconds: float, least: int = 1) -> int:
    """As often as that at least (once, where it takes long), and again as long as there is time; how often that was."""
    begun = time.perf_counter()
    done, spent = 0, 0.0
    while spent < seconds or (done < least and spent < LONG_SECONDS):
        action()
        done += 1
        spent = time.perf_counter() - begun
    return done
