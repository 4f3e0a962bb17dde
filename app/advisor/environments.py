"""What a variant gains its plan, as measured here (docs/decisions/0008-environments-as-plans.md)."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev

from app.advisor.recommendation import Interval
from app.advisor.time_model.intervals import (
    BETWEEN_PROCESSES_THAT_COMPUTE,
    BETWEEN_RUNS,
    Z,
    between_processes,
    deviation,
    interval_around,
    interval_of_timing,
)
from app.advisor.time_model.measured import MeasuredTime
from probes.measurement import Measurement, Overheads, Timing
from probes.workload.description import PLAN_VARIABLES, Plan, Workload

# glibc maps what is larger than a threshold (it moves as a process runs, to 32 MB at most), gives it back when it is
# freed, and the kernel zeroes every page anew (mallopt(3), M_MMAP_THRESHOLD, M_TRIM_THRESHOLD). Larger than any tensor:
KEEP_BYTES = str(2**36)
KEEP_MEMORY: Mapping[str, str] = dict.fromkeys(PLAN_VARIABLES, KEEP_BYTES)
# A setting is one thing more to know and to keep; less than this is not worth it.
WORTH_SETTING = 0.05
# Of a device's step, where issuing adds no more than this to computing, computing is what limits it.
LITTLE_ISSUING = 0.1
# Student's t by degrees of freedom, from one on: so many standard errors hold four in five, as Z does where the
# deviation is known (any table of the distribution).
STUDENT = (3.078, 1.886, 1.638, 1.533, 1.476)


@dataclass(frozen=True, slots=True)
class Gain:
    """A step of a variant and of its bare plan, in turns in fresh processes. ratio_spread: of the two times' ratio, as
    a logarithm (see app.advisor.time_model.intervals), with what two processes of one plan differ by. processes: that
    ran each of the two. startup_seconds: what a compiled plan takes before its first step is done, with nothing cached,
    its device's start included; 0 of others, which start as the bare plan does."""

    plan: Plan
    batch_size: int
    step: Interval
    control: Interval
    ratio_spread: float
    processes: int = 1
    startup_seconds: float = 0.0

    @property
    def share(self) -> float:
        """Of the step without it that is saved."""
        return 1 - self.step.median / self.control.median

    @property
    def pays(self) -> bool:
        """It saves enough, and more than two processes of one plan differ by."""
        return math.log(self.control.median / self.step.median) > self.ratio_spread and self.share >= WORTH_SETTING


def bare(plan: Plan) -> Plan:
    """The same plan as torch has it, with none of the changes."""
    if not is_variant(plan):
        return plan
    return replace(plan, environment={}, channels_last=False, compiled=False, flush_denormal=False)


def is_variant(plan: Plan) -> bool:
    return bool(plan.environment or plan.changes)


def export_lines(plan: Plan) -> list[str]:
    """`export NAME=value`, for a shell."""
    return [f"export {name}={shlex.quote(value)}" for name, value in sorted(plan.environment.items())]


def gain_of(row: Measurement) -> Gain | None:
    """None of a measurement that has no control, or was no more than a first step."""
    if row.outcome != "ok" or row.step is None or row.control is None or not is_variant(row.plan):
        return None
    if row.is_first_step:
        return None
    if row.plan.compiled and row.startup_seconds is None:
        return None  # without its price it is no offer
    startup = row.startup_seconds or 0.0 if row.plan.compiled else 0.0
    if (row.processes or 1) > 1:
        return _gain_over_processes(row, row.step.samples, row.control.samples, startup)
    return _gain_of_two(row, row.step, row.control, startup)


def _gain_over_processes(
    row: Measurement, steps: Sequence[float], controls: Sequence[float], startup_seconds: float
) -> Gain:
    """From one figure a process, each with its control's beside it in time: what processes differ by is in them."""
    ours, theirs = [math.log(step) for step in steps], [math.log(control) for control in controls]
    ratios = [control - step for step, control in zip(ours, theirs, strict=True)]
    step, control = (interval_around(math.exp(fmean(logs)), _spread_of_mean(logs)) for logs in (ours, theirs))
    return Gain(row.plan, row.batch_size, step, control, _spread_of_mean(ratios), len(ratios), startup_seconds)


def _gain_of_two(row: Measurement, with_it: Timing, without: Timing, startup_seconds: float) -> Gain:
    """From samples of one process each. What two processes of one plan differ by is not in them, however little each
    of the two spreads (docs/decisions/0014)."""
    step, control = interval_of_timing(with_it), interval_of_timing(without)
    within = Z * math.hypot(deviation(step), deviation(control))
    own = _between_processes_of(row, with_it)
    theirs = between_processes(row.plan) if row.plan.compiled else own  # what is compiled may wait for launches without
    spread = math.hypot(within, own, theirs)
    return Gain(row.plan, row.batch_size, step, control, spread, startup_seconds=startup_seconds)


def _between_processes_of(row: Measurement, step: Timing) -> float:
    """Known better of a device's step that computing limits, as far as its parts were measured."""
    launch = None if row.overheads is None or row.plan.is_cpu else row.overheads.launch_seconds
    if launch is not None and launch <= LITTLE_ISSUING * step.median:
        return BETWEEN_PROCESSES_THAT_COMPUTE
    return between_processes(row.plan)


def _spread_of_mean(logarithms: Sequence[float]) -> float:
    """What the mean of two or more is off by in four cases of five at most, as far as they themselves tell."""
    student = STUDENT[min(len(logarithms) - 1, len(STUDENT)) - 1]
    return math.hypot(BETWEEN_RUNS, student * stdev(logarithms) / math.sqrt(len(logarithms)))


def gains_that_pay(measurements: Sequence[Measurement], plans: Sequence[Plan], workload: Workload) -> tuple[Gain, ...]:
    """By their steps, at this batch, of these plans; the latest of each. A gain at one batch says nothing of another:
    it comes with the sizes of tensors; nor, on a device, one of steps that were fed in another way. Whether a run
    repays a start: app.advisor.starts. None of a variant that is a plan itself, as where another machine's profile was
    made under an environment."""
    wanted, batch_size = {plan.key for plan in plans}, workload.batch_size
    fed_so = [row for row in measurements if row.plan.is_cpu or row.data == workload.data]
    there = [row for row in fed_so if row.batch_size == batch_size]
    rows = [row for row in there if bare(row.plan).key in wanted and row.plan.key not in wanted]
    latest = {gain.plan.key: gain for row in rows if (gain := gain_of(row)) is not None}
    return tuple(gain for gain in latest.values() if gain.pays)


def measured_beside(
    measurements: Sequence[Measurement], gain: Gain, plain: MeasuredTime | None, data: str
) -> MeasuredTime:
    """The plan's time on the scale of the plans that it is compared with. plain: what its bare plan took among them.

    They ran in turns with each other; this one with its control, in other processes. So its time is its share of its
    control's, times what the bare plan took among the others, where it ran among them; and it met whom that one met.
    """
    row = next(row for row in reversed(measurements) if row.plan.key == gain.plan.key and gain_of(row) == gain)
    among = None if plain is None else plain.rows.get(gain.batch_size)
    step, seconds = row.step, gain.step.median
    assert step is not None
    if among is not None and among.step is not None:
        seconds *= among.step.median / gain.control.median
        row = replace(
            row,
            others_cores=among.others_cores,
            slow_share=among.slow_share,
            slowdown=among.slowdown,
            measured_at=among.measured_at,
        )
    factor = seconds / step.median
    row = replace(row, step=_scaled(step, factor), overheads=scaled_parts(row.overheads, factor))
    return MeasuredTime({gain.batch_size: row}, data)


def scaled_parts(parts: Overheads | None, factor: float) -> Overheads | None:
    """Of a step that takes so many times as long, as far as is known: each part does."""
    if parts is None:
        return None

    def part(seconds: float | None) -> float | None:
        return None if seconds is None else seconds * factor

    return replace(
        parts,
        transfer_seconds=part(parts.transfer_seconds),
        launch_seconds=part(parts.launch_seconds),
        synchronize_seconds=part(parts.synchronize_seconds),
        compute_seconds=part(parts.compute_seconds),
    )


def _scaled(timing: Timing, factor: float) -> Timing:
    samples = tuple(sample * factor for sample in timing.samples)
    return Timing(timing.median * factor, timing.low * factor, timing.high * factor, samples)
