"""Clocks the operations of a micro-network's steps under one plan."""

from __future__ import annotations

import time
from statistics import median

from probes.context import Context
from probes.issued import Issued
from probes.microtrain.calibration.operation_clock import (
    ClockedStep,
    clock_step,
    merge_costs,
    record_operations,
    record_step,
    still_grows,
)
from probes.microtrain.calibration.turns import LEAD_IN_SECONDS, read_after, read_before, repeat
from probes.microtrain.measuring.workbench import StepRun
from probes.microtrain.quiet.calm import Calm
from probes.microtrain.step import Step
from probes.microtrain.traces.recording import Record
from probes.workload.description import Mode, Precision

CLOCKING_SECONDS = 0.006
LEAST_CLOCKED = 2  # steps a turn
GROWING_STEPS = 2  # until a heap that keeps what is freed has grown

# By batch size and precision, what a step runs and what issues it.
Recorded = dict[tuple[int, Precision], tuple[list[Record], Issued]]


class StepClock:
    """Clocks one network's step under one plan, again and again. What fails once is left out.

    records: what steps run and what issues it, shared with the clocks of plans that differ in their threads alone.
    calm: of as many threads.
    """

    def __init__(self, network: str, mode: Mode, run: StepRun, records: Recorded, calm: Calm) -> None:
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
                    self._records[self._key] = self._record(step)
                begun = time.perf_counter()
                warm = repeat(step, LEAD_IN_SECONDS, 1 if self._clocked else GROWING_STEPS)
                before = read_before(self._calm, (time.perf_counter() - begun) / warm)
                turn: list[ClockedStep] = []
                begun = time.perf_counter()
                clocked = repeat(lambda: turn.append(clock_step(step)), CLOCKING_SECONDS, LEAST_CLOCKED)
                self.step_seconds = (time.perf_counter() - begun) / clocked
                self._clocked.append(turn)
                self._readings.append(read_after(self._calm, before))
        except Exception:  # noqa: BLE001 - a network that does not run under a plan is no point of it
            self._failed = True

    def _record(self, step: Step) -> tuple[list[Record], Issued]:
        """What issues the operations is counted for one of the batch sizes that run as many: it is the same for all of
        those, and counting took a third of what there is for clocking."""
        counted = [found for (_, precision), found in self._records.items() if precision == self.run.plan.precision]
        if not counted:
            return record_step(step)
        records = record_operations(step)
        issued = next((issued for known, issued in counted if len(known) == len(records)), None)
        return record_step(step) if issued is None else (records, issued)

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
        if not operations:
            return None
        reckoned = not self.was_calm
        return Context(
            self._network, self.run.batch_size, self._mode, self.run.plan, operations, issued, reckoned=reckoned
        )
