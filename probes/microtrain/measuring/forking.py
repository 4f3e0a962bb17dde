"""Where the plans of a measurement run that can be forked: each in a process of its own, or all in one.

A process of its own is what a user's training has. It has to be forked, the model built in it anew and its memory
touched for the first time, and each of its samples wants a step before it that wakes its threads: too much where the
time does for a few steps of each plan (docs/decisions/0005).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from probes.microtrain.building.least_memory import LeastMemory
from probes.microtrain.failures import Failure
from probes.microtrain.measuring.bench_process import BenchProcess, Least
from probes.microtrain.measuring.plan_process import PlanProcess
from probes.microtrain.processes import fresh_processes
from probes.workload.description import Plan, Workload

# Steps of each plan that the time has to do for; half of them are samples, as one before each wakes the threads.
LEAST_STEPS_APART = 15
# A first step takes up to three times as long as those after it, and hardly longer where it is this long.
LONG_FIRST_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be measured. plans: what is likely to be fast first. end: on time.perf_counter."""

    workload: Workload
    plans: Sequence[Plan]
    batch_sizes: Sequence[int]
    memory_limit_bytes: int | None
    end: float


class Forks:
    """Use `begin` first. are_apart: each plan and batch size has a process of its own.

    trial: what shows how long a step takes, and runs one or two: it is the run of its plan and batch size."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._process = BenchProcess(wanted.workload, wanted.memory_limit_bytes)
        self._trial: PlanProcess | None = None
        self._has_room = False
        self.are_apart = False

    def begin(self, *, apart: bool) -> None:
        """apart: there is room for several processes. Raises Failure `invalid-model`, and EndedEarly where nothing can
        be forked."""
        fresh_processes.wait_until_ready()
        self._has_room = apart
        self.are_apart = apart and self._are_worth_it()

    @property
    def first_step_of(self) -> tuple[Plan, int] | None:
        """Of which plan and batch size a step was begun before any run was asked for; None where the model was not
        built for it yet."""
        trial = self._trial
        return None if trial is None or not trial.process.seconds_to_start else (trial.plan, trial.batch_size)

    def run_of(self, plan: Plan, batch_size: int) -> PlanProcess:
        wanted, trial = self._wanted, self._trial
        if trial is not None and (trial.plan.key, trial.batch_size) == (plan.key, batch_size):
            trial.is_alone = self.are_apart
            return trial
        shared = None if self.are_apart else self._process
        return PlanProcess(wanted.workload, plan, batch_size, wanted.memory_limit_bytes, shared)

    def least_memory(self, batch_size: int) -> LeastMemory | None:
        """That a step takes; None where it is not known: the model fails, or fits, for real. Not asked where there is
        room for several processes."""
        if self._has_room:
            return None
        try:
            found: LeastMemory = self._process.ask(self._wanted.plans[0], batch_size, Least())
        except Failure as failure:
            if failure.code == "invalid-model" and self._wanted.workload.model.kind != "python":
                raise
            return None
        return found

    def end(self) -> None:
        self._process.end()

    def _are_worth_it(self) -> bool:
        """Whether there is time for processes of their own, judged by one of them."""
        wanted = self._wanted
        first = wanted.plans[0]  # of another the first step might outlast all the time
        process = self._process
        trial = PlanProcess(wanted.workload, first, wanted.batch_sizes[0], wanted.memory_limit_bytes, process)
        self._trial = trial
        try:
            each, step = _seconds_apart(trial)
        except Failure as failure:
            self._trial = None
            process.end()
            if failure.code == "invalid-model":
                raise
            return False  # there it is told as well
        others = len(wanted.plans) * len(wanted.batch_sizes) - 1
        # The trial is the run of its own plan: it has begun.
        return each * others + LEAST_STEPS_APART * step <= wanted.end - time.perf_counter()


def _seconds_apart(trial: PlanProcess) -> tuple[float, float]:
    """That a plan's process takes until it has samples, and a step in it. Raises Failure."""
    first = trial.run_ahead()
    step = first if first > LONG_FIRST_SECONDS else trial.run_ahead()
    return trial.process.seconds_to_start + first + (1 + LEAST_STEPS_APART) * step, step
