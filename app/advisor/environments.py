"""What a variant gains its plan, as measured here (docs/decisions/0008-environments-as-plans.md)."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from app.advisor.intervals import Z, apart, deviation, interval_of_timing
from app.advisor.measured import MeasuredTime
from app.advisor.recommendation import Interval
from probes.measurement import Measurement, Timing
from probes.workload.description import Plan

# glibc maps what is larger than a threshold (it moves as a process runs, to 32 MB at most), gives it back when it is
# freed, and the kernel zeroes every page anew (mallopt(3), M_MMAP_THRESHOLD, M_TRIM_THRESHOLD). Larger than any tensor:
KEEP_BYTES = str(2**36)
KEEP_MEMORY: Mapping[str, str] = {"MALLOC_MMAP_THRESHOLD_": KEEP_BYTES, "MALLOC_TRIM_THRESHOLD_": KEEP_BYTES}
# A setting is one thing more to know and to keep; less than this is not worth it.
WORTH_SETTING = 0.05


@dataclass(frozen=True, slots=True)
class Gain:
    """A step of a variant (environment, channels-last) and of its bare plan, in turns in fresh processes."""

    plan: Plan
    batch_size: int
    step: Interval
    control: Interval

    @property
    def share(self) -> float:
        """Of the step without it that is saved."""
        return 1 - self.step.median / self.control.median

    @property
    def pays(self) -> bool:
        return apart(self.step, self.control) and self.share >= WORTH_SETTING

    @property
    def ratio_spread(self) -> float:
        """Of the two times' ratio, as a logarithm (see app.advisor.intervals)."""
        return Z * math.hypot(deviation(self.step), deviation(self.control))


def bare(plan: Plan) -> Plan:
    """The same plan as torch has it: its own environment and layout."""
    return replace(plan, environment={}, channels_last=False) if is_variant(plan) else plan


def is_variant(plan: Plan) -> bool:
    return bool(plan.environment) or plan.channels_last


def export_lines(plan: Plan) -> list[str]:
    """`export NAME=value`, for a shell."""
    return [f"export {name}={shlex.quote(value)}" for name, value in sorted(plan.environment.items())]


def gain_of(row: Measurement) -> Gain | None:
    """None of a measurement that has no control."""
    if row.outcome != "ok" or row.step is None or row.control is None or not is_variant(row.plan):
        return None
    return Gain(row.plan, row.batch_size, interval_of_timing(row.step), interval_of_timing(row.control))


def gains_that_pay(measurements: Sequence[Measurement], plans: Sequence[Plan], batch_size: int) -> tuple[Gain, ...]:
    """At this batch, of these plans; the latest of each. A gain at one batch says nothing of another: it comes with
    the sizes of tensors."""
    wanted = {plan.key for plan in plans}
    rows = [row for row in measurements if row.batch_size == batch_size and bare(row.plan).key in wanted]
    found = {gain.plan.key: gain for row in rows if (gain := gain_of(row)) is not None}
    return tuple(gain for gain in found.values() if gain.pays)


def measured_beside(measurements: Sequence[Measurement], gain: Gain, data: str) -> MeasuredTime:
    """The plan's time on the scale of the plans that it is compared with.

    They ran in one process, in turns; this one in another. So its time is its share of its control's, times what the
    bare plan took among the others, where it ran among them; and it met whom that one met.
    """
    row = next(row for row in reversed(measurements) if row.plan.key == gain.plan.key and gain_of(row) == gain)
    among = [
        other
        for other in measurements
        if other.plan.key == bare(gain.plan).key and other.batch_size == gain.batch_size and other.step is not None
    ]
    assert row.step is not None
    if among and among[-1].step is not None:
        factor = among[-1].step.median / gain.control.median
        row = replace(row, step=_scaled(row.step, factor), others_cores=among[-1].others_cores)
    return MeasuredTime({gain.batch_size: row}, data)


def _scaled(timing: Timing, factor: float) -> Timing:
    samples = tuple(sample * factor for sample in timing.samples)
    return Timing(timing.median * factor, timing.low * factor, timing.high * factor, samples)
