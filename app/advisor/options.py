"""Every plan as an option: time, memory, and whether it can run at all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.advisor.explanations.words import say_bytes, say_seconds
from app.advisor.memory_model.memory import MemoryEstimate, Room
from app.advisor.recommendation import Breakdown, MemoryParts, Option
from app.advisor.time_model.measured import begun_times
from app.advisor.time_model.step_estimate import StepEstimate
from app.advisor.time_model.step_time import PlanTime
from probes import bounds
from probes.measurement import Measurement
from probes.workload.description import Plan, Workload

# Every sentence about a step that was not reached in time advises more of it (probes.microtrain, contest and measure;
# a test holds them to it).
OUT_OF_TIME = "more time"
# What ran out of memory is tried again once this many times as much is free: less changes from minute to minute.
MORE_FREE = 1.1
ELSE = "it takes smaller inputs, a smaller model, or a larger machine"
BESIDE = "what the process takes beside is not known, as no calibration here has measured it"


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of running this very plan: the largest batch that ran more than one step (the first finds no state of
    an optimizer beside it) and would now, the smallest that ran out of memory where no more was free than is now, the
    smallest that ran but took more than is free now, why it did not run, if it did not, and why it was not reached, if
    the time ran out before. held_bytes, allocated_bytes: measured at the batch asked for, fed as asked; on a device of
    torch's allocator. smallest: the smallest batch that torch takes."""

    room: Room
    ran: int | None = None
    too_big: int | None = None
    outgrown: tuple[int, int] | None = None  # batch size, and the bytes that it took
    refused: str | None = None
    not_reached: str | None = None
    begun_seconds: float | None = None  # of the first step at the batch asked for, where no other ran
    held_bytes: int | None = None
    allocated_bytes: int | None = None
    smallest: int = 1

    @property
    def peak_bytes(self) -> int | None:
        """With what a device takes beside; None where that is not known, or nothing was measured."""
        return None if self.held_bytes is None or self.room.beside is None else self.held_bytes + self.room.beside


def tried(measurements: Sequence[Measurement], plan: Plan, workload: Workload, room: Room) -> Tried:
    """room: on the plan's device now. A measurement may be old, and memory may be taken since.

    What torch cannot do here it cannot at any batch; what failed otherwise, or was not reached, did so at its own. What
    ran, or took too much memory, tells of other ways to feed it where those take no more, or no less."""
    batch_size = workload.batch_size
    rows = [row for row in measurements if row.plan.key == plan.key]
    done = [row for row in rows if row.outcome == "ok"]
    light = [row for row in rows if _takes_no_more(row, workload)]
    held_by = [(row.batch_size, _held(row)) for row in light if row.outcome == "ok"]
    peaks = [(size, peak + (room.beside or 0)) for size, peak in held_by if peak is not None]
    over = [(size, peak) for size, peak in peaks if room.free is not None and peak > room.free]
    outgrown = min(over, default=None)
    too_much = [row for row in light if _is_too_big(row, room.free)]
    too_big = min((row.batch_size for row in too_much), default=None)
    since = {(row.batch_size, row.data) for row in too_much}  # it came after what ran like that (app.store.latest)
    heavy = [row for row in done if _takes_no_less(row, workload)]
    went_on = [row for row in heavy if row.steps > 0 and not row.is_first_step]
    sizes = [row.batch_size for row in went_on if (row.batch_size, row.data) not in since]
    ran = max((size for size in sizes if outgrown is None or size < outgrown[0]), default=None)
    begun = begun_times(done, plan).get(batch_size)
    unsupported = [row for row in rows if row.outcome == "unsupported"]
    failed = _last_reason([row for row in rows if row.outcome == "failed" and row.batch_size == batch_size])
    late = failed is not None and OUT_OF_TIME in failed.lower()
    refused = failed if not late and all(row.batch_size != batch_size for row in done) else None
    refused = refused if done else _last_reason(unsupported) or refused
    held, allocated = _measured_bytes(done, workload)
    return Tried(room, ran, too_big, outgrown, refused, failed if late else None, begun, held, allocated)


def _measured_bytes(done: Sequence[Measurement], workload: Workload) -> tuple[int | None, int | None]:
    """Held and allocated, by the last that tells of this batch fed in this way."""
    for row in reversed(done):
        held = _held(row)
        alike = row.batch_size == workload.batch_size and _is_fed_alike(row, workload)
        if alike and held is not None and row.memory is not None:
            return held, row.memory.allocated_bytes
    return None, None


def failed_at(measurements: Sequence[Measurement], plan: Plan) -> frozenset[int]:
    """Batch sizes at which this plan never ran and last failed, but for want of time or of memory."""
    rows = [row for row in measurements if row.plan.key == plan.key]
    ran = {row.batch_size for row in rows if row.outcome == "ok"}
    last = {row.batch_size: (row.reason or "").lower() for row in rows if row.outcome == "failed"}
    return frozenset(size for size, reason in last.items() if size not in ran and OUT_OF_TIME not in reason)


def _is_too_big(row: Measurement, available: int | None) -> bool:
    """It ran out of memory, and no more is free now than was then."""
    if row.outcome != "out-of-memory":
        return False
    return available is None or row.available_bytes is None or available < MORE_FREE * row.available_bytes


def _last_reason(rows: Sequence[Measurement]) -> str | None:
    return (rows[-1].reason or "It gave no reason.") if rows else None


def _is_fed_alike(row: Measurement, workload: Workload) -> bool:
    return _takes_no_more(row, workload) and _takes_no_less(row, workload)


def _takes_no_more(row: Measurement, workload: Workload) -> bool:
    """Than fed as asked. From pinned memory, of which a host has not much, a device is sent the next batch meanwhile; a
    CPU's batches are there whatever is asked."""
    return row.plan.is_cpu or row.data != "pinned" or workload.data == "pinned"


def _takes_no_less(row: Measurement, workload: Workload) -> bool:
    """Than fed as asked."""
    return row.plan.is_cpu or row.data == "pinned" or workload.data != "pinned"


def _held(row: Measurement) -> int | None:
    """Bytes of the process on a CPU, of torch's allocator on a device; None where they were not measured."""
    if row.memory is None:
        return None
    return row.memory.process_bytes if row.plan.is_cpu else row.memory.reserved_bytes


def option_for(
    time: PlanTime, memory: MemoryEstimate | None, outcome: Tried, workload: Workload, advice: str
) -> Option:
    """What is known about one plan at the batch asked for. advice: what gives a time where none is known."""
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
        note=_note(time, outcome, estimate, advice),
        crowded=estimate is not None and estimate.crowded,
    )


def _note(time: PlanTime, outcome: Tried, estimate: StepEstimate | None, advice: str) -> str | None:
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
    return f"It has been neither calibrated nor measured. {advice}"


def _fits(
    memory: MemoryEstimate | None, outcome: Tried, workload: Workload, plan: Plan
) -> tuple[bool | None, str | None]:
    """What ran, fits, unless it took more than is free now; what ran out of memory does not; the rest is estimated."""
    batch = workload.batch_size
    if outcome.ran is not None and batch <= outcome.ran:
        return True, None
    if outcome.too_big is not None and batch >= outcome.too_big:
        return False, f"It ran out of memory here at batch size {outcome.too_big}. {_remedy(memory, outcome, workload)}"
    if outcome.outgrown is not None and batch >= outcome.outgrown[0]:
        size, took = outcome.outgrown
        now = f"it took {say_bytes(took)} here, and {say_bytes(outcome.room.free or 0)} are free on {plan.device} now"
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
    none = "Not even one sample fits" if outcome.smallest == 1 else f"Not even {outcome.smallest} samples fit"
    if memory is None or memory.available is None:
        return f"{none}: {ELSE}."
    return _remedy_of_least(memory, workload, memory.available, outcome.smallest, none)


def _remedy_of_least(memory: MemoryEstimate, workload: Workload, available: int, smallest: int, none: str) -> str:
    """Where the smallest batch that torch takes does not fit. none: that, in words."""
    room = available - memory.peak(smallest)
    if room >= 0:  # and yet it did not run
        return f"{none}: {ELSE}."
    would = "one" if smallest == 1 else f"{smallest}"
    lighter = _lighter_optimizer(memory, workload)
    if lighter is not None and room + lighter[1] >= 0:
        return f"{none}; with the optimizer {lighter[0]} {would} would."
    training_only = memory.gradients + memory.optimizer
    if workload.mode == "training" and room + training_only >= 0:
        return f"{none} in training; inference of one would."
    if memory.weights > available:
        return f"The weights alone take {say_bytes(memory.weights)}: it takes a smaller model, or a larger machine."
    return f"{none}: {ELSE}."


def _lighter_optimizer(memory: MemoryEstimate, workload: Workload) -> tuple[str, int] | None:
    """Plain SGD keeps nothing between steps (torch.optim.SGD without momentum)."""
    if workload.mode == "training" and memory.optimizer > 0 and workload.optimizer != "sgd":
        return "sgd", memory.optimizer
    return None


def _parts(memory: MemoryEstimate | None, outcome: Tried, batch_size: int) -> MemoryParts:
    """The estimated parts; where the step ran, its measured peak, with the difference in what a CPU's heap holds, or
    else in the activations, which hold what kernels take inside."""
    held, peak = outcome.held_bytes, outcome.peak_bytes
    if memory is None:
        allocated = outcome.allocated_bytes
        reserved = held if allocated is not None else None  # nobody measured a CPU's
        told = MemoryParts(peak_bytes=peak, available_bytes=outcome.room.free)
        return replace(told, allocated_peak_bytes=allocated, reserved_peak_bytes=reserved)
    parts = memory.parts(batch_size)
    if held is None:
        return parts
    if not memory.on_cpu:
        above = max(held - (memory.fixed - (memory.overhead or 0)), 0)
        allocated = parts.allocated_peak_bytes if outcome.allocated_bytes is None else outcome.allocated_bytes
        measured = replace(parts, peak_bytes=peak, activations_bytes=above)
        return replace(measured, reserved_peak_bytes=held, allocated_peak_bytes=allocated)
    above = max(held - memory.fixed, 0)
    activations = min(math.ceil(memory.activations_at(batch_size)), above)
    measured = replace(parts, peak_bytes=peak, process_peak_bytes=peak)
    return replace(measured, activations_bytes=activations, fragmentation_bytes=above - activations)


def _max_batch(memory: MemoryEstimate | None, outcome: Tried) -> int | None:
    """No more than may be asked for; 0 where that is fewer than torch takes."""
    largest = memory.max_batch_size() if memory is not None else None
    if outcome.too_big is not None:
        largest = outcome.too_big - 1 if largest is None else min(largest, outcome.too_big - 1)
    if outcome.outgrown is not None:
        largest = outcome.outgrown[0] - 1 if largest is None else min(largest, outcome.outgrown[0] - 1)
    if outcome.ran is not None and largest is not None:
        largest = max(largest, outcome.ran)
    if largest is not None and largest < outcome.smallest:
        return 0
    return largest and min(largest, bounds.MAX_BATCH_SIZE)
