"""What would make a workload that does not fit take less memory: each change with what it saves."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from app.advisor.explanations.words import say_bytes
from app.advisor.memory_model.memory import activation_peaks, data_set_bytes, step_peaks, trace_on, with_update
from app.advisor.memory_model.peaks import NOTHING
from app.advisor.recommendation import Option
from probes.hardware import Survey
from probes.trace import AUTOCAST, Phase, Trace
from probes.workload.description import Plan, Precision, Workload

SMALLER, LIGHTER, CHECKPOINTING = "a batch of", "the optimizer sgd", "gradient checkpointing"
# Of what only a forward runs, so much is found in the backward of a step that computes it again.
AGAIN = 0.5


@dataclass(frozen=True, slots=True)
class Remedy:
    """One change, or two together. fits: whether that is enough; None where it is not known."""

    change: str
    saves_bytes: int
    fits: bool | None


def remedies_for(
    option: Option,
    trace: Trace,
    workload: Workload,
    halved: Precision | None = "bf16",
    halved_option: Option | None = None,
    machine: Survey | None = None,
) -> tuple[Remedy, ...]:
    """The changes that save anything, the one that saves most first. halved: a precision of two bytes in which the
    plan's device runs this; None: there is none. halved_option: what is told of the plan in it, if it is. machine: with
    its cards; None: nobody knows them."""
    missing, trace = _missing(option), trace_on(machine, option.plan, trace)
    found = [
        Remedy(change, round(saves), None if missing is None else saves >= missing)
        for change, saves in _changes(option, trace, workload, halved)
        if saves >= 1
    ]
    if halved_option is not None:
        found = [told for remedy in found if (told := _as_told(remedy, option, halved_option)) is not None]
    return tuple(sorted([*found, *_together(found, missing)], key=lambda remedy: -remedy.saves_bytes))


def _as_told(remedy: Remedy, option: Option, halved: Option) -> Remedy | None:
    """A lower precision as its own option has it, as what ran in it knows better. None where by that it saves nothing,
    or where it ran out of memory against its estimate, and what it saves is not known."""
    if remedy.change != halved.plan.precision:
        return remedy
    now, then = option.memory.peak_bytes, halved.memory.peak_bytes
    if halved.fits is False and then is not None and _missing(halved) is None:
        return None
    saves = remedy.saves_bytes if now is None or then is None else now - then
    return replace(remedy, saves_bytes=saves, fits=halved.fits) if saves >= 1 else None


def _together(found: Sequence[Remedy], missing: int | None) -> Iterator[Remedy]:
    """The optimizer sgd with one other change, where no change alone keeps the batch and both do. An optimizer's state
    lies there through the whole step, whatever the rest does, so what the two save adds up; of others it does not."""
    keeping = [remedy for remedy in found if not remedy.change.startswith(SMALLER)]
    lighter = next((remedy for remedy in keeping if remedy.change == LIGHTER), None)
    others = [remedy for remedy in keeping if remedy is not lighter]
    if missing is None or lighter is None or not others or any(remedy.fits for remedy in keeping):
        return
    most = max(others, key=lambda remedy: remedy.saves_bytes)
    if (both := lighter.saves_bytes + most.saves_bytes) >= missing:
        yield Remedy(f"{lighter.change} and {most.change}", both, fits=True)


def say_remedies(remedies: tuple[Remedy, ...]) -> str:
    """`What saves memory: a batch of 12 (2.1 GB, enough), …`; empty without any. What checkpointing saves is a rule of
    thumb's."""
    if not remedies:
        return ""
    named = (
        f"{remedy.change} ({'about ' if CHECKPOINTING in remedy.change else ''}{say_bytes(remedy.saves_bytes)}"
        f"{', enough' if remedy.fits else ''})"
        for remedy in remedies
    )
    return f" What saves memory: {', '.join(named)}."


def _missing(option: Option) -> int | None:
    """None where it is not known: of what ran out of memory, whatever its estimate says."""
    memory = option.memory
    if option.ran_out:
        return None
    if memory.peak_bytes is None or memory.available_bytes is None or memory.peak_bytes <= memory.available_bytes:
        return None
    return memory.peak_bytes - memory.available_bytes


def _changes(option: Option, trace: Trace, workload: Workload, halved: Precision | None) -> Iterator[tuple[str, float]]:
    """Each change with the bytes that it saves, by itself."""
    plan, batch = option.plan, workload.batch_size
    now = step_peaks(trace, plan, workload.data).at(batch)
    smaller = 0 if option.max_batch_size is None else option.held.largest_below(batch)
    if smaller:
        saves = now - step_peaks(trace, plan, workload.data).at(smaller)
        yield f"{SMALLER} {smaller}", max(saves, _missing(option) or 0)  # it fits, by what ran here as well
    if halved is not None and plan.precision not in AUTOCAST:
        yield halved, now - step_peaks(trace, Plan(plan.device, halved), workload.data).at(batch)
    yield "pageable data", data_set_bytes(trace, workload)
    if workload.mode == "training":
        if not is_checkpointed(trace):
            yield CHECKPOINTING, _checkpointed(trace, plan, batch)
        if workload.optimizer != "sgd":
            stateless = replace(trace, optimizer="sgd", update_peaks=())  # it holds nothing in its own step either
            held = now - step_peaks(stateless, plan, workload.data).at(batch)
            yield LIGHTER, trace.optimizer_bytes + held


def is_checkpointed(trace: Trace) -> bool:
    """Whether the step computes its forward again in the backward. Nothing else runs there an operation whose gradient
    has a name of its own (aten.gelu, aten.gelu_backward), nor aten.addmm, whose gradients are products without a
    sum."""
    executions: Counter[tuple[Phase, str]] = Counter()
    for operation in trace.operations:
        executions[operation.phase, operation.name] += operation.count
    telling = [
        name
        for phase, name in executions
        if phase == "forward" and (name == "aten.addmm" or ("backward", f"{name}_backward") in executions)
    ]
    once = sum(executions["forward", name] for name in telling)
    return 0 < AGAIN * once <= sum(executions["backward", name] for name in telling)


def _checkpointed(trace: Trace, plan: Plan, batch: int) -> float:
    """Bytes saved where each of sqrt(n) stretches of n layers is computed again in the backward: about 2 / sqrt(n) of
    the activations stay, what is kept between stretches and one stretch (Chen et al. 2016, Training Deep Nets with
    Sublinear Memory Cost). No stretch is smaller than its largest layer: a network whose first layer holds most gains
    nothing. Layers: what has weights."""
    layers = [
        (operation.count, operation.written_bytes.at(batch))
        for operation in trace.operations
        if operation.phase == "forward" and operation.kind in ("matmul", "convolution", "attention", "recurrent")
    ]
    activations = activation_peaks(trace, plan).at(batch)
    saved = (1 - _kept_share(layers)) * (activations - trace.input_bytes.at(batch))
    update = with_update(NOTHING, trace, plan).at(batch)
    return max(activations, update) - max(activations - saved, update)


def _kept_share(layers: Sequence[tuple[int, float]]) -> float:
    """layers: how many, and the bytes that each writes."""
    total = sum(count * written for count, written in layers)
    if total <= 0:
        return 1.0
    between = 1 / math.sqrt(sum(count for count, _ in layers))
    largest = max(written for _, written in layers) / total
    return min(between + max(between, largest), 1.0)
