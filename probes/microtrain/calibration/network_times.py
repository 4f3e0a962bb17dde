"""Times one micro-network's steps under every plan, and the operations inside them."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from probes.context import Context
from probes.measurement import Timing
from probes.microtrain.calibration.networks import MICRO_NETWORKS, MicroNetwork
from probes.microtrain.calibration.plan_shares import PlanShares
from probes.microtrain.calibration.step_clock import LEAST_CLOCKED, Recorded, StepClock
from probes.microtrain.calibration.step_timer import StepTimer
from probes.microtrain.calibration.turns import in_turn, without_calm
from probes.microtrain.measuring.workbench import StepRun, Workbench
from probes.microtrain.processes.footprint import keep_freed_memory
from probes.microtrain.quiet.calm import Calm
from probes.microtrain.quiet.noise import QueueTime, read_queue
from probes.microtrain.quiet.resting import Rest, leaves_threads
from probes.workload.description import Mode, Plan

CLOCKED_SHARE = 0.7  # of the time is for clocking operations
MOST_ROUNDS, LARGE_ROUNDS = 12, 2
MOST_GROWING = 3  # more of those clocked, where an operation has met it growing in each
MOST_TIMED = 12
# Every batch size is to be clocked once under every plan, for which a network may take so many times its share of the
# time more: visits that would have come again are left out for it.
OVERDRAFT = 0.5
LONG_STEPS = 5  # that one plan and batch size takes at least, timed and clocked, where steps are long


Calms = Mapping[int | None, Calm]  # by threads


class StepTime(NamedTuple):
    """page_faults: of a step, on average. reckoned: no turn met calm cores."""

    batch_size: int
    plan: Plan
    seconds: Timing
    page_faults: float
    reckoned: bool = False


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
            first = round_number == 0
            for place, timer in enumerate(in_turn(timers, len(self._plans)) if first else without_calm(timers)):
                if (first and place < len(self._plans)) or time.perf_counter() < end:
                    self._time(timer, LONG_STEPS if first else 1)
        steps = [
            StepTime(timer.run.batch_size, timer.run.plan, timing, timer.faults, not timer.was_calm)
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
        """What each operation takes inside the steps, and who clocked them: a round over all plans and batches, then
        others over those that met slow cores, until the time is over. The first may take longer, and the smallest batch
        under every plan is clocked in any case."""
        overdrawn = self._deadline + OVERDRAFT * (self._deadline - self._begun)
        records: Recorded = {}
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
            for place, clock in enumerate(in_turn(turns, len(self._plans)) if first else without_calm(turns)):
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
