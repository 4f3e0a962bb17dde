"""Every plan as an option: time, memory, and whether it can run at all."""

from __future__ import annotations

from dataclasses import replace

from app.advisor.explanations.advice import Advice
from app.advisor.explanations.uncopied import say_uncopied
from app.advisor.explanations.words import say_bytes, say_seconds
from app.advisor.memory_model.memory import MemoryEstimate
from app.advisor.memory_model.raised import raised_to
from app.advisor.memory_model.stretches import EVERY, Stretches
from app.advisor.recommendation import Breakdown, MemoryParts, Option
from app.advisor.time_model.single_steps import SingleStep
from app.advisor.time_model.step_estimate import StepEstimate
from app.advisor.time_model.step_time import PlanTime
from app.advisor.tried import Tried
from probes import bounds
from probes.measurement import Timing
from probes.workload.description import Plan, Workload

BESIDE = "what the process takes beside is not known, as no calibration has measured it"


def option_for(
    time: PlanTime, memory: MemoryEstimate | None, outcome: Tried, workload: Workload, advice: Advice
) -> Option:
    """What is known about one plan at the batch asked for. advice: what gives a time where none is known."""
    plan, batch = time.plan, workload.batch_size
    raised = raised_to(memory, outcome.took) if memory is not None else None
    fits, why_not = _fits(raised, outcome, workload, plan)
    parts = _parts(_told_by(memory, raised, outcome, batch), outcome, workload, plan)
    held = _held(raised, outcome)
    largest = _told_largest(held, raised, outcome)
    up_to = 0 if largest == 0 else _without_gap(held, outcome) if _is_told(raised, outcome) else None
    if fits is False or outcome.refused is not None:
        why_not, cannot_run = outcome.refused or why_not, outcome.refused is not None
        empty = Option(plan, fits, why_not, None, None, None, Breakdown(), parts, largest)
        ran_out = outcome.too_big is not None and batch >= outcome.too_big
        return replace(empty, cannot_run=cannot_run, fits_up_to=up_to, held=held, ran_out=ran_out)
    estimate = time.at(batch, workload.data)
    without_copy = _uncopied_seconds(time, estimate, workload)
    is_late = outcome.not_reached is not None or outcome.begun_seconds is not None
    note = _note_of_others(time, estimate, batch, advice) or _note(time, outcome, estimate, advice)
    if estimate is None and without_copy is not None and not is_late:
        note = say_uncopied(plan, workload.data, without_copy)
    return Option(
        plan=plan,
        fits=fits,
        why_not=None,
        basis=estimate.basis if estimate is not None else None,
        step_seconds=estimate.seconds if estimate is not None else None,
        samples_per_second=batch / estimate.seconds.median if estimate is not None else None,
        breakdown_seconds=time.breakdown(batch, workload.data),
        memory=parts,
        max_batch_size=largest,
        note=note,
        crowded=estimate is not None and estimate.crowded,
        relieved=estimate is not None and estimate.relieved,
        slowed=1.0 if estimate is None else None if estimate.by_one_step else estimate.slowed,
        uncopied_seconds=without_copy,
        fits_up_to=up_to,
        held=held,
        rests_on_prediction=estimate is not None and estimate.rests_on_prediction,
    )


def _uncopied_seconds(time: PlanTime, estimate: StepEstimate | None, workload: Workload) -> float | None:
    """Of a step without the copies that nobody calibrated; None where that was done, or it was measured with them."""
    batch, was_fed = workload.batch_size, None if time.measured is None else time.measured.data
    if time.predicted is None or (estimate is not None and was_fed == workload.data):
        return None
    if time.predicted.copy_seconds(batch, workload.data) is not None:
        return None
    resident = time.seconds(batch, "resident")
    return None if resident is None else resident.median


def _told_by(
    memory: MemoryEstimate | None, raised: MemoryEstimate | None, outcome: Tried, batch_size: int
) -> MemoryEstimate | None:
    """What says how much this batch takes: where it was measured, that stands in for what is estimated; where so many
    samples ran out of memory, nobody knows how much they lacked."""
    if memory is None or outcome.held_bytes is not None:
        return memory
    if outcome.too_big is not None and batch_size >= outcome.too_big:
        return raised_to(memory, (took for took in outcome.took if not took.ran_out))
    return raised


def _note_of_others(time: PlanTime, estimate: StepEstimate | None, batch_size: int, advice: Advice) -> str | None:
    """Of a time that rests on what was taken while others held cores, by which nobody can tell what it takes without
    them."""
    single, row = time.singles.get(batch_size), time.nearest_row(batch_size)
    if estimate is None or estimate.basis == "measured":
        return None
    left = ", who hold fewer now" if advice.is_here else ""
    again = " Measure it again (effort quick)." if advice.is_here else ""
    if single is not None and not single.is_first:
        return (
            f"Only one sample of it was taken, {say_seconds(single.seconds)} a step while others held "
            f"{single.others_cores:.1f} cores: it says no more than that a step takes no longer without them.{again}"
        )
    if single is not None and estimate.relieved and _met_who_left(time, single):
        return (
            f"Only its first step ran, which took {say_seconds(single.seconds)} while others held "
            f"{single.others_cores:.1f} cores{left}; those after it take less.{_more_time(advice)}"
        )
    if single is None and row is not None and row.step is not None and not time.relief(batch_size):
        return _note_of_a_spell(row.step) + again if estimate.relieved else None
    if row is not None and estimate.relieved and time.relief(batch_size) > 0:
        where = "" if row.batch_size == batch_size else f" at batch size {row.batch_size}"
        return (
            f"It was measured{where} while others held {row.others_cores:.1f} cores{left}: what is told lies between "
            f"what steps took then and the least that they may take without them.{again}"
        )
    return None


def _met_who_left(time: PlanTime, single: SingleStep) -> bool:
    return time.crowd is not None and time.crowd.relief(time.plan, single.others_cores) > 0


def _note_of_a_spell(step: Timing) -> str:
    """Of steps that somebody held up, whom nobody saw."""
    return (
        f"Its steps took from {say_seconds(step.low)} to {say_seconds(step.high)} while they were measured, as if "
        "others had held it up: what is told is what is predicted, and at worst what they took."
    )


def _more_time(advice: Advice) -> str:
    return " More time would do." if advice.is_here else ""


def _note(time: PlanTime, outcome: Tried, estimate: StepEstimate | None, advice: Advice) -> str | None:
    """Why this plan was not measured at this batch, or why nothing is known of it."""
    if estimate is not None and estimate.basis == "measured":
        return None
    if outcome.not_reached is not None:
        return f"It was not measured. {outcome.not_reached}"
    if outcome.begun_seconds is not None:
        first = say_seconds(outcome.begun_seconds)
        return f"Only its first step ran, which took {first}; those after it take less.{_more_time(advice)}"
    if estimate is not None:
        return None
    has_run = time.measured is not None and bool(time.measured.own_batch_sizes)
    if advice.why:
        what = "It ran at other batch sizes only" if has_run else "It has not been measured"
        return f"{what}, and {advice.why}. {advice.unknown}"
    if has_run:
        return "It ran at other batch sizes only, and without a calibration nothing is known about this one."
    return f"It has been neither calibrated nor measured. {advice.unknown}"


def _fits(
    memory: MemoryEstimate | None, outcome: Tried, workload: Workload, plan: Plan
) -> tuple[bool | None, str | None]:
    """What ran, fits, unless it took more than is free now; what ran out of memory does not; the rest is estimated."""
    batch = workload.batch_size
    if batch in outcome.sizes or (outcome.ran is not None and batch <= outcome.ran):
        return True, None
    if outcome.too_big is not None and batch >= outcome.too_big:
        remedy = _remedy(memory, outcome, workload, plan)
        return False, f"It ran out of memory at batch size {outcome.too_big}. {remedy}"
    if outcome.outgrown is not None and batch >= outcome.outgrown[0]:
        size, took = outcome.outgrown
        data_set = 0 if memory is None else memory.data_set
        also = f", its data set takes {say_bytes(data_set)}" if data_set else ""
        free = f"{say_bytes(outcome.room.free or 0)} are free on {plan.device}"
        now = f"it took {say_bytes(took - data_set)}{also}, and {free}"
        return False, f"At batch size {size} {now}. {_remedy(memory, outcome, workload, plan)}"
    if memory is None:
        return None, None
    fits = memory.fits(batch)
    return fits, explain_missing(memory, outcome, workload, plan) if fits is False else None


def explain_missing(memory: MemoryEstimate, outcome: Tried, workload: Workload, plan: Plan) -> str:
    """How much memory is missing, and what would make it fit."""
    limit = memory.limit or 0
    need = memory.peak(workload.batch_size)
    missing, remedy = say_bytes(need - limit), _remedy(memory, outcome, workload, plan)
    if memory.available is None:
        has = f"{plan.device} has {say_bytes(limit)}, of which nobody knows how much is free"
        return f"It needs {say_bytes(need)} and {has}: at least {missing} are missing. {remedy}"
    return (
        f"It needs {say_bytes(need)} and {say_bytes(limit)} are free on {plan.device}: {missing} are missing. {remedy}"
    )


def _remedy(memory: MemoryEstimate | None, outcome: Tried, workload: Workload, plan: Plan) -> str:
    """The first thing that would make it fit, the least intrusive first. What ran, or did not, knows better than what
    is estimated."""
    held, batch = _held(memory, outcome), workload.batch_size
    if told := _fitting_batches(held, memory, outcome, batch):
        unknown = memory is not None and memory.overhead is None and told != [str(outcome.ran)]
        named = told[0] if len(told) == 1 else f"{told[0]}, or of {told[1]},"
        return f"A batch of {named} would fit{f', or somewhat less: {BESIDE}' if unknown else ''}."
    if held.each and batch > 1:
        return f"A {'smaller' if held.largest_below(batch) else 'larger'} batch may fit."
    none = "Not even one sample fits" if outcome.smallest == 1 else f"Not even {outcome.smallest} samples fit"
    if memory is None or memory.limit is None:
        return f"{none}: {_else(on_cpu=plan.is_cpu)}."
    is_known = memory.available is not None and outcome.too_big is None  # how much is lacking
    return _remedy_of_least(memory, workload, memory.limit, outcome.smallest, none, "would" if is_known else "may")


def _fitting_batches(held: Stretches, memory: MemoryEstimate | None, outcome: Tried, batch_size: int) -> list[str]:
    """In words, the largest of smaller ones, and the next larger ones, which take less than this one: as far as these
    ran, or the estimate ends there."""
    estimated = EVERY if memory is None or memory.available is None else memory.stretches()
    smaller, larger = held.largest_below(batch_size), held.next_above(batch_size)
    ran = (smaller == outcome.ran or smaller in outcome.sizes) and _is_told(memory, outcome)
    told = [str(smaller)] if smaller and (ran or smaller + 1 not in estimated) else []
    is_estimated = memory is not None and memory.available is not None
    return [*told, str(larger)] if larger is not None and is_estimated else told


def _remedy_of_least(
    memory: MemoryEstimate, workload: Workload, limit: int, smallest: int, none: str, would: str
) -> str:
    """Where the smallest batch that torch takes does not fit. limit: the estimate's. none: that, in words. would: or
    may, where nobody knows how much is lacking."""
    room = limit - memory.peak(smallest)
    if room >= 0:  # and yet it did not run
        return f"{none}: {_else(on_cpu=memory.on_cpu)}."
    one = "one" if smallest == 1 else f"{smallest}"
    if memory.data_set and room + memory.data_set >= 0:
        return f"{none} beside {say_bytes(memory.data_set)} of resident data; with pageable data {one} {would}."
    lighter = _lighter_optimizer(memory, workload, smallest)
    if lighter is not None and room + lighter[1] >= 0:
        return f"{none}; with the optimizer {lighter[0]} {one} {would}."
    training_only = memory.gradients + memory.optimizer + memory.update_beyond(smallest)
    if workload.mode == "training" and room + training_only >= 0:
        return f"{none} in training; inference of one {would}."
    if memory.weights > limit:
        larger = _larger(on_cpu=memory.on_cpu)
        return f"The weights alone take {say_bytes(memory.weights)}: it takes a smaller model, or {larger}."
    whatever_inputs = memory.fixed - memory.data_set + memory.update_at(0) >= limit
    return f"{none}: {_else(on_cpu=memory.on_cpu, whatever_inputs=whatever_inputs)}."


def _else(*, on_cpu: bool, whatever_inputs: bool = False) -> str:
    """whatever_inputs: what does not grow with them is too much by itself."""
    inputs = "" if whatever_inputs else "smaller inputs, "
    return f"it takes {inputs}a smaller model, or {_larger(on_cpu=on_cpu)}"


def _larger(*, on_cpu: bool) -> str:
    """Of this machine's devices another may do, where one is too small."""
    return "a larger machine" if on_cpu else "a device with more memory"


def _lighter_optimizer(memory: MemoryEstimate, workload: Workload, smallest: int) -> tuple[str, int] | None:
    """Plain SGD keeps nothing between steps (torch.optim.SGD without momentum), and holds nothing in its own."""
    if workload.mode == "training" and memory.optimizer > 0 and workload.optimizer != "sgd":
        return "sgd", memory.optimizer + memory.update_beyond(smallest)
    return None


def _parts(memory: MemoryEstimate | None, outcome: Tried, workload: Workload, plan: Plan) -> MemoryParts:
    """The estimated parts; where the step ran, its measured peak, with the difference where least is known of it."""
    held, peak, batch_size = outcome.held_bytes, outcome.peak_bytes, workload.batch_size
    allocated, reserved = outcome.device
    if memory is None:
        told = MemoryParts(peak_bytes=peak, available_bytes=outcome.room.free)
        process = peak if plan.is_cpu else None
        return replace(told, allocated_peak_bytes=allocated, reserved_peak_bytes=reserved, process_peak_bytes=process)
    parts = memory.parts(batch_size)
    if held is None:
        return _no_more_than(parts, outcome.most_at(batch_size), outcome.room.beside or 0, on_cpu=memory.on_cpu)
    if memory.on_cpu:
        return _measured_on_cpu(memory, parts, held)
    of_step = memory.fixed - (memory.overhead or 0)  # of whose overhead a device's allocator knows nothing
    if parts.overhead_bytes is not None:
        parts = replace(parts, overhead_bytes=max(parts.overhead_bytes - max(of_step - held, 0), 0))
    allocated = parts.allocated_peak_bytes if allocated is None else allocated
    above = max(held - of_step, 0) + memory.data_set  # in the activations, which hold what kernels take inside
    measured = replace(parts, peak_bytes=peak, activations_bytes=above)
    return replace(measured, reserved_peak_bytes=reserved, allocated_peak_bytes=allocated)


def _measured_on_cpu(memory: MemoryEstimate, parts: MemoryParts, held: int) -> MemoryParts:
    """What it took beyond its parts lies in the heap; what it took less first in what libraries take, which is known
    the least."""
    activations = parts.activations_bytes or 0
    missing = memory.fixed - memory.data_set + activations - held
    from_overhead = min(max(missing, 0), parts.overhead_bytes or 0)
    overhead = None if parts.overhead_bytes is None else parts.overhead_bytes - from_overhead
    reserved = parts.reserved_peak_bytes if overhead is None else held - overhead
    allocated = parts.allocated_peak_bytes
    return replace(
        parts,
        activations_bytes=max(activations - max(missing - from_overhead, 0), 0),
        overhead_bytes=overhead,
        fragmentation_bytes=max(-missing, 0),
        peak_bytes=held,
        process_peak_bytes=held,
        reserved_peak_bytes=reserved,
        allocated_peak_bytes=allocated if allocated is None or reserved is None else min(allocated, reserved),
    )


def _no_more_than(parts: MemoryParts, most: int | None, beside: int, *, on_cpu: bool) -> MemoryParts:
    """Lowered to what a batch as large took, where least is known: on a CPU in the heap, then in what libraries take;
    on a device in the activations, as what it takes beside was measured. most: bytes; None: nobody knows. beside: of
    those, what a device's allocator knows nothing of."""
    if most is None or parts.peak_bytes is None or parts.peak_bytes <= most:
        return parts
    beyond, lowered = parts.peak_bytes - most, dict[str, int]()
    order = ("overhead_bytes", "activations_bytes") if on_cpu else ("activations_bytes", "overhead_bytes")
    for name in ("fragmentation_bytes", *order):
        less = min(beyond, getattr(parts, name) or 0)
        if less:
            lowered[name] = getattr(parts, name) - less
            beyond -= less
    peaks = {name: most for name in ("peak_bytes", "process_peak_bytes") if getattr(parts, name) is not None}
    outside = lowered.get("overhead_bytes", parts.overhead_bytes or 0) if on_cpu else beside
    for name in ("reserved_peak_bytes", "allocated_peak_bytes"):
        if getattr(parts, name) is not None:
            peaks[name] = min(getattr(parts, name), most - outside)
    return replace(parts, **lowered, **peaks)


def held_batches(memory: MemoryEstimate | None, outcome: Tried) -> Stretches:
    """The batches that a plan holds, by what is estimated and what came of running it; where nobody knows what is free,
    by all that its device has."""
    return _held(raised_to(memory, outcome.took) if memory is not None else None, outcome)


def _held(memory: MemoryEstimate | None, outcome: Tried) -> Stretches:
    """None that is smaller than torch takes, or larger than may be asked for."""
    held = memory.stretches() if memory is not None else EVERY
    for too_big in (outcome.too_big, None if outcome.outgrown is None else outcome.outgrown[0]):
        held = held if too_big is None else held.at_most(too_big - 1)
    held = held.with_each(outcome.sizes)
    if outcome.ran is not None:
        held = held.with_all_up_to(outcome.ran)
    held = held if held.largest is None else held.at_most(bounds.MAX_BATCH_SIZE)
    return held.at_least(outcome.smallest)


def _told_largest(held: Stretches, memory: MemoryEstimate | None, outcome: Tried) -> int | None:
    """None where only the estimate tells it, and nobody knows what is free. 0: there is none."""
    return held.largest if _is_told(memory, outcome) or held.largest == 0 else None


def _is_told(memory: MemoryEstimate | None, outcome: Tried) -> bool:
    return memory is None or memory.available is not None or outcome.too_big is not None


def _without_gap(held: Stretches, outcome: Tried) -> int | None:
    """The batch up to which all are held, of those that may be asked for; 0: not even the smallest that torch takes is;
    None: no end is known."""
    first, last = held.each[0]
    if first > outcome.smallest:
        return 0
    return None if last is None else min(last, bounds.MAX_BATCH_SIZE)
