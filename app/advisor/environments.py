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
from probes.workload.description import Plan, Workload

# glibc maps what is larger than a threshold (it moves as a process runs, to 32 MB at most), gives it back when it is
# freed, and the kernel zeroes every page anew (mallopt(3), M_MMAP_THRESHOLD, M_TRIM_THRESHOLD). Larger than any tensor:
KEEP_BYTES = str(2**36)
KEEP_MEMORY: Mapping[str, str] = {"MALLOC_MMAP_THRESHOLD_": KEEP_BYTES, "MALLOC_TRIM_THRESHOLD_": KEEP_BYTES}
# A setting is one thing more to know and to keep; less than this is not worth it.
WORTH_SETTING = 0.05


@dataclass(frozen=True, slots=True)
class Gain:
    """A step of a variant and of its bare plan, in turns in fresh processes. startup_seconds: what a compiled plan
    takes before its first step is done, with nothing cached; 0 of others, which start as the bare plan does."""

    plan: Plan
    batch_size: int
    step: Interval
    control: Interval
    startup_seconds: float = 0.0

    @property
    def share(self) -> float:
        """Of the step without it that is saved."""
        return 1 - self.step.median / self.control.median

    @property
    def pays(self) -> bool:
        return apart(self.step, self.control) and self.share >= WORTH_SETTING

    @property
    def break_even_steps(self) -> int:
        """Steps after which the start is repaid; for a gain that pays."""
        return math.ceil(self.startup_seconds / (self.control.median - self.step.median))

    def pays_within(self, steps: int | None) -> bool:
        """Within a run of so many steps; None: nobody said how long it is."""
        return self.pays and (steps is None or self.break_even_steps < steps)

    @property
    def ratio_spread(self) -> float:
        """Of the two times' ratio, as a logarithm (see app.advisor.intervals)."""
        return Z * math.hypot(deviation(self.step), deviation(self.control))


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
    return Gain(row.plan, row.batch_size, interval_of_timing(row.step), interval_of_timing(row.control), startup)


def gains_that_pay(measurements: Sequence[Measurement], plans: Sequence[Plan], workload: Workload) -> tuple[Gain, ...]:
    """Within this run."""
    return tuple(gain for gain in _gains(measurements, plans, workload) if gain.pays_within(workload.steps))


def gains_too_late(measurements: Sequence[Measurement], plans: Sequence[Plan], workload: Workload) -> tuple[Gain, ...]:
    """Those that would pay in a longer run."""
    found = _gains(measurements, plans, workload)
    return tuple(gain for gain in found if gain.pays and not gain.pays_within(workload.steps))


def _gains(measurements: Sequence[Measurement], plans: Sequence[Plan], workload: Workload) -> list[Gain]:
    """At this batch, of these plans; the latest of each. A gain at one batch says nothing of another: it comes with
    the sizes of tensors."""
    wanted = {plan.key for plan in plans}
    rows = [row for row in measurements if row.batch_size == workload.batch_size and bare(row.plan).key in wanted]
    return list({gain.plan.key: gain for row in rows if (gain := gain_of(row)) is not None}.values())


def measured_beside(measurements: Sequence[Measurement], gain: Gain, data: str) -> MeasuredTime:
    """The plan's time on the scale of the plans that it is compared with.

    They ran in one process, in turns; this one in another. So its time is its share of its control's, times what the
    bare plan took among the others, where it ran among them; and it met whom that one met.
    """
    row = next(row for row in reversed(measurements) if row.plan.key == gain.plan.key and gain_of(row) == gain)
    among = [
        other
        for other in measurements
        if other.plan.key == bare(gain.plan).key
        and other.batch_size == gain.batch_size
        and other.step is not None
        and not other.is_first_step
    ]
    assert row.step is not None
    if among and among[-1].step is not None:
        factor = among[-1].step.median / gain.control.median
        row = replace(
            row,
            step=_scaled(row.step, factor),
            others_cores=among[-1].others_cores,
            slow_share=among[-1].slow_share,
            slowdown=among[-1].slowdown,
            measured_at=among[-1].measured_at,
        )
    return MeasuredTime({gain.batch_size: row}, data)


def _scaled(timing: Timing, factor: float) -> Timing:
    samples = tuple(sample * factor for sample in timing.samples)
    return Timing(timing.median * factor, timing.low * factor, timing.high * factor, samples)
