"""What one step that stands alone says of those after it: a first step, or one sample among others who hold cores."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from app.advisor.crowding import LEAST_EXPOSURE, TURNS_SECONDS, Crowd, alone
from app.advisor.recommendation import Interval
from app.advisor.time_model.intervals import ONE_SAMPLE, between_processes, interval_around, widen
from app.advisor.time_model.step_estimate import StepEstimate
from probes.measurement import Measurement
from probes.workload.description import Plan

# A first step makes what those after it find: it touches memory for the first time, which takes up to three times as
# long, and makes threads and kernels (36 ms were seen for a model of 15 parameters); on a device it also loads
# libraries, and finds out which kernels are quick (0.42 s were seen on an H100, of a ResNet-18).
FIRST_STEP_FACTOR = 3.0
FIRST_STEP_SECONDS, FIRST_STEP_SECONDS_OF_DEVICE = 0.1, 2.0
# Of a sample as long as this others' turns are a twentieth at most: one is as good as several.
LONG_SAMPLE_SECONDS = 20 * TURNS_SECONDS


class SingleStep(NamedTuple):
    """seconds: it took. others_cores: that others held meanwhile; None: not known. is_first: of its process; else it is
    a sample of steps after that, the only one, and others were in its way."""

    seconds: float
    others_cores: float | None = None
    is_first: bool = True

    def limits(self, plan: Plan, crowd: Crowd | None) -> Interval:
        """What those after it take on a calm machine: no less than low (0: nobody can tell) and no more than high;
        median is told where nothing else is known."""
        relief = 0.0 if crowd is None else crowd.relief(plan, self.others_cores)
        if self.is_first or crowd is None:
            beyond = FIRST_STEP_SECONDS if plan.is_cpu else FIRST_STEP_SECONDS_OF_DEVICE
            least = max(self.seconds - beyond, 0.0) / FIRST_STEP_FACTOR
            found = Interval(self.seconds, least, self.seconds)
            return alone(found, plan, relief) if relief > 0 else found
        least = crowd.least_alone(self.seconds, plan, self.others_cores)
        most = widen(interval_around(self.seconds, ONE_SAMPLE), between_processes(plan)).high
        return Interval(math.sqrt(least * self.seconds) if relief > 0 else self.seconds, least, most)

    def leaves_possible(self, told: Interval, within: Interval) -> bool:
        """What is told otherwise is not disproved. within: its limits."""
        return told.low <= within.high if self.is_first else within.low <= told.median <= within.high

    def is_luck(self, plan: Plan, crowd: Crowd | None) -> bool:
        """Others may have been in its way, and it is too short to have met all that they do: it may have waited for all
        of their turns, or for none."""
        if crowd is None or self.seconds >= LONG_SAMPLE_SECONDS:
            return False
        return crowd.exposed_at_most(plan, self.others_cores) >= LEAST_EXPOSURE

    def as_told(self, plan: Plan, crowd: Crowd | None, otherwise: StepEstimate | None) -> StepEstimate | None:
        """By this step alone, beside nobody. otherwise: what is told without it, and longer than a first step leaves
        possible: by how much that one does not say. None: it says too little."""
        within, is_luck = self.limits(plan, crowd), self.is_luck(plan, crowd)
        if self.is_first and otherwise is not None:
            within = replace(within, median=self.seconds, low=self.seconds / FIRST_STEP_FACTOR)
        elif within.low <= 0 or not plan.is_cpu:
            return None
        have_left = crowd is not None and crowd.relief(plan, self.others_cores) > 0
        at_best = is_luck and (have_left or not self.is_first)
        slowed = (within.low if at_best else within.median) / self.seconds
        return StepEstimate(within, "probed", slowed=slowed, by_one_step=is_luck)


def single_steps(rows: Iterable[Measurement], crowd: Crowd | None = None) -> dict[int, SingleStep]:
    """By batch size, where a plan ran no other step, then or later: how it was fed is the least of it. rows: the
    plan's. crowd: who holds cores now, and who did."""
    found: dict[int, SingleStep] = {}
    for row in rows:
        if took(row) > 0:
            found.pop(row.batch_size, None)
            if is_single(row, crowd):
                found[row.batch_size] = SingleStep(took(row), row.others_cores, row.is_first_step)
    return found


def is_single(row: Measurement, crowd: Crowd | None) -> bool:
    """It tells what steps take no more than a first one does. One sample of a short step may have waited for all that
    others do: on a crowded machine iris-mlp's step took 19 ms by one, and 1.6 ms by 40 less than a minute later."""
    if row.is_first_step:
        return True
    is_one = row.step is not None and len(row.step.samples) == 1 and not 0 < (row.slow_share or 0) < 1  # of several
    is_sample = is_one and took(row) < LONG_SAMPLE_SECONDS
    return is_sample and crowd is not None and crowd.may_tell_of_others(row)


def took(row: Measurement) -> float:
    """Seconds of a step; 0 where none ran."""
    return row.step.median if row.outcome == "ok" and row.step is not None else 0.0
