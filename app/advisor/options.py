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


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of running this very plan: the largest batch that ran more than one step (the first finds no state of
    an optimizer beside it) and would now, the smallest that ran out of memory, the smallest that ran but took more
    than is free now, why torch refused it, if it did, and why it was not reached, if the time ran out before."""

    ran: int | None = None
    too_big: int | None = None
    outgrown: tuple[int, int] | None = None  # batch size, and the bytes that it took
    refused: str | None = None
    not_reached: str | None = None
    begun_seconds: float | None = None  # of the first step at the batch asked for, where no other ran
    peak_bytes: int | None = None  # measured at the batch asked for


def tried(measurements: Sequence[Measurement], plan: Plan, batch_size: int, available: int | None = None) -> Tried:
    """available: bytes free on the plan's device now. A measurement may be old, and memory may be taken since."""
    rows = [row for row in measurements if row.plan.key == plan.key]
    done = [row for row in rows if row.outcome == "ok"]
    over = [(row.batch_size, peak) for row in done if available is not None and (peak := _peak(row) or 0) > available]
    outgrown = min(over, default=None)
    went_on = [row.batch_size for row in done if row.steps > 0 and not row.is_first_step]
    ran = max((size for size in went_on if outgrown is None or size < outgrown[0]), default=None)
    too_big = min((row.batch_size for row in rows if row.outcome == "out-of-memory"), default=None)
    failures = [row.reason or "it gave no reason" for row in rows if row.outcome in ("unsupported", "failed")]
    late = [reason for reason in failures if OUT_OF_TIME in reason.lower()]
    refused = [] if done else [reason for reason in failures if reason not in late]
    here = [row for row in done if row.batch_size == batch_size]
    begun = begun_times(done, plan).get(batch_size)
    return Tried(ran, too_big, outgrown, _first(refused), _first(late), begun, _peak(here[-1]) if here else None)


def _first(reasons: Sequence[str]) -> str | None:
    return reasons[0] if reasons else None


def _peak(row: Measurement) -> int | None:
    if row.memory is None:
        return None
    return row.memory.process_bytes if row.plan.is_cpu else row.memory.reserved_bytes


def option_for(time: PlanTime, memory: MemoryEstimate | None, outcome: Tried, workload: Workload) -> Option:
    """What is known about one plan at the batch asked for."""
    plan, batch = time.plan, workload.batch_size
    fits, why_not = _fits(memory, outcome, workload, plan)
    if fits is False or outcome.refused is not None:
        why_not = why_not if fits is False else outcome.refused
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
        note=_note(time, outcome, estimate),
        crowded=estimate is not None and estimate.crowded,
    )


def _note(time: PlanTime, outcome: Tried, estimate: StepEstimate | None) -> str | None:
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
    return "It has been neither calibrated nor measured here: run `crosspoint calibrate`, or ask with effort quick."


def _fits(
    memory: MemoryEstimate | None, outcome: Tried, workload: Workload, plan: Plan
) -> tuple[bool | None, str | None]:
    """What ran, fits, unless it took more than is free now; what ran out of memory does not; the rest is estimated."""
    batch = workload.batch_size
    if outcome.ran is not None and batch <= outcome.ran:
        return True, None
    if outcome.too_big is not None and batch >= outcome.too_big:
        return False, f"It ran out of memory here at batch size {outcome.too_big}. {_remedy(memory, workload, plan)}"
    if outcome.outgrown is not None and memory is not None and batch >= outcome.outgrown[0]:
        size, took = outcome.outgrown
        now = f"it took {say_bytes(took)} here, and {say_bytes(memory.available or 0)} are free on {plan.device} now"
        return False, f"At batch size {size} {now}. {_remedy(memory, workload, plan)}"
    if memory is None:
        return None, None
    fits = memory.fits(batch)
    return fits, explain_missing(memory, workload, plan) if fits is False else None


def explain_missing(memory: MemoryEstimate, workload: Workload, plan: Plan) -> str:
    """How much memory is missing, and what would make it fit."""
    available = memory.available or 0
    need = memory.peak(workload.batch_size)
    return (
        f"It needs {say_bytes(need)} and {say_bytes(available)} are free on {plan.device}: "
        f"{say_bytes(need - available)} are missing. {_remedy(memory, workload, plan)}"
    )


def _remedy(memory: MemoryEstimate | None, workload: Workload, plan: Plan) -> str:
    """The first thing that would make it fit, the least intrusive first."""
    if memory is None or memory.available is None:
        return "A smaller batch may fit."
    largest = memory.max_batch_size()
    if largest is not None and largest >= max(workload.batch_size, 2):  # what was measured knows better
        return "A smaller batch may fit."
    if largest is not None and 1 <= largest < workload.batch_size:
        return f"A batch of {largest} would fit."
    room = memory.available - memory.peak(1)
    lighter = _lighter_optimizer(memory, workload)
    if lighter is not None and room + lighter[1] >= 0:
        return f"Not even one sample fits; with the optimizer {lighter[0]} one would."
    training_only = memory.gradients + memory.optimizer
    if workload.mode == "training" and room + training_only >= 0:
        return "Not even one sample fits in training; inference of one would."
    weights = memory.weights + (memory.overhead or 0)
    if weights > memory.available:
        return f"The weights alone take {say_bytes(memory.weights)}: it takes a smaller model, or a larger machine."
    return "Not even one sample fits: it takes smaller inputs, a smaller model, or a larger machine."


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
        measured = replace(parts, peak_bytes=outcome.peak_bytes, reserved_peak_bytes=outcome.peak_bytes)
        return replace(measured, activations_bytes=above)
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
