"""Every plan as an option: time, memory, and whether it can run at all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.advisor.measured import begun_times
from app.advisor.memory import MemoryEstimate
from app.advisor.recommendation import Breakdown, MemoryParts, Option
from app.advisor.step_time import PlanTime, StepEstimate
from app.advisor.words import say_bytes, say_seconds
from probes import bounds
from probes.measurement import Measurement
from probes.workload.description import Plan, Workload

# Every sentence about a step that was not reached in time advises more of it (probes.microtrain, contest and measure;
# a test holds them to it).
OUT_OF_TIME = "more time"
# What ran out of memory is tried again once this many times as much is free: less changes from minute to minute.
MORE_FREE = 1.1
NOT_ONE = "Not even one sample fits: it takes smaller inputs, a smaller model, or a larger machine."
BESIDE = "what the process takes beside is not known before a calibration"


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of running this very plan: the largest batch that ran more than one step (the first finds no state of
    an optimizer beside it) and would now, the smallest that ran out of memory where no more was free than is now, the
    smallest that ran but took more than is free now, why it did not run, if it did not, and why it was not reached, if
    the time ran out before."""

    ran: int | None = None
    too_big: int | None = None
    outgrown: tuple[int, int] | None = None  # batch size, and the bytes that it took
    refused: str | None = None
    not_reached: str | None = None
    begun_seconds: float | None = None  # of the first step at the batch asked for, where no other ran
    peak_bytes: int | None = None  # measured at the batch asked for, on a device with what it takes beside


def tried(
    measurements: Sequence[Measurement], plan: Plan, batch_size: int, available: int | None = None, beside: int = 0
) -> Tried:
    """available: bytes free on the plan's device now. A measurement may be old, and memory may be taken since. beside:
    bytes that a device's context takes, which torch's allocator does not count.

    What torch cannot do here it cannot at any batch; what failed otherwise, or was not reached, did so at its own."""
    rows = [row for row in measurements if row.plan.key == plan.key]
    done = [row for row in rows if row.outcome == "ok"]
    peaks = [(row.batch_size, peak + beside) for row in done if (peak := _peak(row)) is not None]
    over = [(size, peak) for size, peak in peaks if available is not None and peak > available]
    outgrown = min(over, default=None)
    went_on = [row.batch_size for row in done if row.steps > 0 and not row.is_first_step]
    ran = max((size for size in went_on if outgrown is None or size < outgrown[0]), default=None)
    too_big = min((row.batch_size for row in rows if _is_too_big(row, available)), default=None)
    here = [peak for size, peak in peaks if size == batch_size]
    begun = begun_times(done, plan).get(batch_size)
    unsupported = [row for row in rows if row.outcome == "unsupported"]
    failed = _last_reason([row for row in rows if row.outcome == "failed" and row.batch_size == batch_size])
    late = failed is not None and OUT_OF_TIME in failed.lower()
    refused = failed if not late and all(row.batch_size != batch_size for row in done) else None
    refused = refused if done else _last_reason(unsupported) or refused
    return Tried(ran, too_big, outgrown, refused, failed if late else None, begun, here[-1] if here else None)


def _is_too_big(row: Measurement, available: int | None) -> bool:
    """It ran out of memory, and no more is free now than was then."""
    if row.outcome != "out-of-memory":
        return False
    return available is None or row.available_bytes is None or available < MORE_FREE * row.available_bytes


def _last_reason(rows: Sequence[Measurement]) -> str | None:
    return (rows[-1].reason or "It gave no reason.") if rows else None


def _peak(row: Measurement) -> int | None:
    if row.memory is None:
        return None
    return row.memory.process_bytes if row.plan.is_cpu else row.memory.reserved_bytes


def option_for(
    time: PlanTime, memory: MemoryEstimate | None, outcome: Tried, workload: Workload, *, elsewhere: bool = False
) -> Option:
    """What is known about one plan at the batch asked for. elsewhere: on another machine."""
    plan, batch = time.plan, workload.batch_size
    fits, why_not = _fits(memory, outcome, workload, plan)
    if fits is False or outcome.refused is not None:
        why_not = outcome.refused or why_not
        empty = Option(plan, fits, why_not, None, None, None, Breakdown(), _parts(memory, outcome, batch), None)
        return replace(empty, max_batch_size=_max_batch(memory, outcome), cannot_run=outcome.refused is not None)
    estimate = time.at(batch, workload.data)
    return Option(
        plan=plan,
        fits=fits,
        why_not=None,
        basis=estimate.basis if estimate is not None else None,
        step_seconds=estimate.seconds if estimate is not None else None,
        samples_per_second=batch / estimate.seconds.median if estimate is not None else None,
        breakdown_seconds=time.breakdown(batch, workload.data),
        memory=_parts(memory, outcome, batch),
        max_batch_size=_max_batch(memory, outcome),
        note=_note(time, outcome, estimate, elsewhere),
        crowded=estimate is not None and estimate.crowded,
    )


def _note(time: PlanTime, outcome: Tried, estimate: StepEstimate | None, elsewhere: bool) -> str | None:
    """Why this plan was not measured at this batch, or why nothing is known of it."""
    if estimate is not None and estimate.basis == "measured":
        return None
    if outcome.not_reached is not None:
        return f"It was not measured. {outcome.not_reached}"
    if outcome.begun_seconds is not None:
        first = say_seconds(outcome.begun_seconds)
        return f"Only its first step ran, which took {first}; those after it take less. More time would do."
    if estimate is not None:
        return None
    if time.measured is not None:
        return "It ran at other batch sizes only, and without a calibration nothing is known about this one."
    if elsewhere:
        return "The profile has nothing for it: calibrate it on that machine, and import its profile again."
    return "It has been neither calibrated nor measured here: run `crosspoint calibrate`, or ask with effort quick."


def _fits(
    memory: MemoryEstimate | None, outcome: Tried, workload: Workload, plan: Plan
) -> tuple[bool | None, str | None]:
    """What ran, fits, unless it took more than is free now; what ran out of memory does not; the rest is estimated."""
    batch = workload.batch_size
    if outcome.ran is not None and batch <= outcome.ran:
        return True, None
    if outcome.too_big is not None and batch >= outcome.too_big:
        return False, f"It ran out of memory here at batch size {outcome.too_big}. {_remedy(memory, outcome, workload)}"
    if outcome.outgrown is not None and memory is not None and batch >= outcome.outgrown[0]:
        size, took = outcome.outgrown
        now = f"it took {say_bytes(took)} here, and {say_bytes(memory.available or 0)} are free on {plan.device} now"
        return False, f"At batch size {size} {now}. {_remedy(memory, outcome, workload)}"
    if memory is None:
        return None, None
    fits = memory.fits(batch)
    return fits, explain_missing(memory, outcome, workload, plan) if fits is False else None


def explain_missing(memory: MemoryEstimate, outcome: Tried, workload: Workload, plan: Plan) -> str:
    """How much memory is missing, and what would make it fit."""
    available = memory.available or 0
    need = memory.peak(workload.batch_size)
    return (
        f"It needs {say_bytes(need)} and {say_bytes(available)} are free on {plan.device}: "
        f"{say_bytes(need - available)} are missing. {_remedy(memory, outcome, workload)}"
    )


def _remedy(memory: MemoryEstimate | None, outcome: Tried, workload: Workload) -> str:
    """The first thing that would make it fit, the least intrusive first. What ran, or did not, knows better than what
    is estimated."""
    smaller = workload.batch_size > 1
    largest, estimated = _max_batch(memory, outcome), memory.max_batch_size() if memory is not None else None
    if smaller and largest is not None and 1 <= largest < workload.batch_size and largest in (estimated, outcome.ran):
        unknown = memory is not None and memory.overhead is None and largest != outcome.ran
        return f"A batch of {largest} would fit{', or somewhat less: {BESIDE}' if unknown else ''}."
    if smaller and largest != 0:
        return "A smaller batch may fit."
    if memory is None or memory.available is None:
        return NOT_ONE
    return _remedy_of_one(memory, workload, memory.available)


def _remedy_of_one(memory: MemoryEstimate, workload: Workload, available: int) -> str:
    room = available - memory.peak(1)
    if room >= 0:  # and yet it did not run
        return NOT_ONE
    lighter = _lighter_optimizer(memory, workload)
    if lighter is not None and room + lighter[1] >= 0:
        return f"Not even one sample fits; with the optimizer {lighter[0]} one would."
    training_only = memory.gradients + memory.optimizer
    if workload.mode == "training" and room + training_only >= 0:
        return "Not even one sample fits in training; inference of one would."
    if memory.weights > available:
        return f"The weights alone take {say_bytes(memory.weights)}: it takes a smaller model, or a larger machine."
    return NOT_ONE


def _lighter_optimizer(memory: MemoryEstimate, workload: Workload) -> tuple[str, int] | None:
    """Plain SGD keeps nothing between steps (torch.optim.SGD without momentum)."""
    if workload.mode == "training" and memory.optimizer > 0 and workload.optimizer != "sgd":
        return "sgd", memory.optimizer
    return None


def _parts(memory: MemoryEstimate | None, outcome: Tried, batch_size: int) -> MemoryParts:
    """The estimated parts; where the step ran, its measured peak, with the difference in what a CPU's heap holds, or
    else in the activations, which hold what kernels take inside."""
    if memory is None:
        return MemoryParts(peak_bytes=outcome.peak_bytes)
    parts = memory.parts(batch_size)
    if outcome.peak_bytes is None:
        return parts
    above = max(outcome.peak_bytes - memory.fixed, 0)
    if not memory.on_cpu:
        reserved = outcome.peak_bytes - (memory.overhead or 0)
        return replace(parts, peak_bytes=outcome.peak_bytes, reserved_peak_bytes=reserved, activations_bytes=above)
    activations = min(math.ceil(memory.activations_at(batch_size)), above)
    measured = replace(parts, peak_bytes=outcome.peak_bytes, process_peak_bytes=outcome.peak_bytes)
    return replace(measured, activations_bytes=activations, fragmentation_bytes=above - activations)


def _max_batch(memory: MemoryEstimate | None, outcome: Tried) -> int | None:
    """No more than may be asked for."""
    largest = memory.max_batch_size() if memory is not None else None
    if outcome.too_big is not None:
        largest = outcome.too_big - 1 if largest is None else min(largest, outcome.too_big - 1)
    if outcome.outgrown is not None:
        largest = outcome.outgrown[0] - 1 if largest is None else min(largest, outcome.outgrown[0] - 1)
    if outcome.ran is not None and largest is not None:
        largest = max(largest, outcome.ran)
    return largest and min(largest, bounds.MAX_BATCH_SIZE)
