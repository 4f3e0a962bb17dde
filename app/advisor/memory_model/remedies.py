"""What would make a workload that does not fit take less memory: each change with what it saves."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from app.advisor.explanations.words import say_bytes, say_seconds
from app.advisor.memory_model.memory import activation_peaks, data_set_bytes, step_peaks, trace_on, with_update
from app.advisor.memory_model.peaks import NOTHING
from app.advisor.recommendation import Option
from probes.hardware import Survey
from probes.trace import AUTOCAST, Phase, Trace
from probes.workload.description import Plan, Precision, Workload

SMALLER, LIGHTER, CHECKPOINTING = "a batch of", "the optimizer sgd", "gradient checkpointing"
# Of what only a forward runs, so much is found in the backward of a step that computes it again.
AGAIN = 0.5


# Seconds of a step of this plan at this batch size, whether it fits or not; None where nobody knows.
StepSeconds = Callable[[Plan, int], float | None]


@dataclass(frozen=True, slots=True)
class Remedy:
    """One change, or two together. fits: whether that is enough; None where it is not known. step_seconds: of a step
    with it; None where it is not enough, or nobody knows."""

    change: str
    saves_bytes: int
    fits: bool | None
    step_seconds: float | None = None


class _Change(NamedTuple):
    """By itself."""

    name: str
    saves_bytes: float
    step_seconds: float | None = None


def remedies_for(
    option: Option,
    trace: Trace,
    workload: Workload,
    halved: Precision | None = "bf16",
    halved_option: Option | None = None,
    machine: Survey | None = None,
    step_seconds: StepSeconds = lambda plan, batch_size: None,
) -> tuple[Remedy, ...]:
    """The changes that save anything, the one that saves most first. halved: a precision of two bytes in which the
    plan's device runs this; None: there is none. halved_option: what is told of the plan in it, if it is. machine: with
    its cards; None: nobody knows them."""
    missing, trace = _missing(option), trace_on(machine, option.plan, trace)
    found = [
        Remedy(change.name, round(change.saves_bytes), _is_enough(change, missing), change.step_seconds)
        for change in _changes(option, trace, workload, halved, step_seconds)
        if change.saves_bytes >= 1
    ]
    if halved_option is not None:
        found = [told for remedy in found if (told := _as_told(remedy, option, halved_option)) is not None]
    found = [replace(remedy, step_seconds=None) if remedy.fits is False else remedy for remedy in found]
    return tuple(sorted([*found, *_together(found, missing)], key=lambda remedy: -remedy.saves_bytes))


def _is_enough(change: _Change, missing: int | None) -> bool | None:
    return None if missing is None else change.saves_bytes >= missing


def _as_told(remedy: Remedy, option: Option, halved: Option) -> Remedy | None:
    """A lower precision as its own option has it, as what ran in it knows better. None where by that it saves nothing,
    or where it ran out of memory against its estimate, and what it saves is not known."""
    if remedy.change != halved.plan.precision:
        return remedy
    now, then = option.memory.peak_bytes, halved.memory.peak_bytes
    if halved.fits is False and then is not None and _missing(halved) is None:
        return None
    saves = remedy.saves_bytes if now is None or then is None else now - then
    seconds = remedy.step_seconds if halved.step_seconds is None else halved.step_seconds.median
    return replace(remedy, saves_bytes=saves, fits=halved.fits, step_seconds=seconds) if saves >= 1 else None


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
    """`What saves memory: a batch of 12 (2.1 GB, enough, 24 ms a step), …`; empty without any. What checkpointing saves
    and takes is a rule of thumb's."""
    if not remedies:
        return ""
    named = (
        f"{remedy.change} ({_about(remedy)}{say_bytes(remedy.saves_bytes)}{', enough' if remedy.fits else ''}"
        f"{_say_step(remedy)})"
        for remedy in remedies
    )
    return f" What saves memory: {', '.join(named)}."


def _about(remedy: Remedy) -> str:
    return "about " if CHECKPOINTING in remedy.change else ""


def _say_step(remedy: Remedy) -> str:
    return "" if remedy.step_seconds is None else f", {_about(remedy)}{say_seconds(remedy.step_seconds)} a step"


def _missing(option: Option) -> int | None:
    """None where it is not known: of what ran out of memory, whatever its estimate says."""
    memory = option.memory
    if option.ran_out:
        return None
    if memory.peak_bytes is None or memory.available_bytes is None or memory.peak_bytes <= memory.available_bytes:
        return None
    return memory.peak_bytes - memory.available_bytes


def _changes(
    option: Option, trace: Trace, workload: Workload, halved: Precision | None, step_seconds: StepSeconds
) -> Iterator[_Change]:
    plan, batch = option.plan, workload.batch_size
    now = step_peaks(trace, plan, workload.data).at(batch)
    smaller = 0 if option.max_batch_size is None else option.held.largest_below(batch)
    if smaller:
        saves = now - step_peaks(trace, plan, workload.data).at(smaller)
        saves = max(saves, _missing(option) or 0)  # it fits, by what ran here as well
        yield _Change(f"{SMALLER} {smaller}", saves, step_seconds(plan, smaller))
    if halved is not None and plan.precision not in AUTOCAST:
        saves = now - step_peaks(trace, Plan(plan.device, halved), workload.data).at(batch)
        yield _Change(halved, saves, step_seconds(replace(plan, precision=halved), batch))
    yield _Change("pageable data", data_set_bytes(trace, workload))
    if workload.mode == "training":
        if not is_checkpointed(trace):
            seconds = step_seconds(plan, batch)
            longer = None if seconds is None else seconds * (1 + _forward_share(trace, plan, batch))
            yield _Change(CHECKPOINTING, _checkpointed(trace, plan, batch), longer)
        if workload.optimizer != "sgd":
            stateless = replace(trace, optimizer="sgd", update_peaks=())  # it holds nothing in its own step either
            held = now - step_peaks(stateless, plan, workload.data).at(batch)
            yield _Change(LIGHTER, trace.optimizer_bytes + held)


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
    nothing. Layers: what has weights. Nothing where fewer of them run backward than forward: the rest is frozen, and
    keeps nothing for a backward that it has not."""
    heavy = [each for each in trace.operations if each.kind in ("matmul", "convolution", "attention", "recurrent")]
    layers = [(each.count, each.written_bytes.at(batch)) for each in heavy if each.phase == "forward"]
    if sum(each.count for each in heavy if each.phase == "backward") < sum(count for count, _ in layers):
        return 0.0
    activations = activation_peaks(trace, plan).at(batch)
    saved = (1 - _kept_share(layers)) * (activations - trace.input_bytes.at(batch))
    update = with_update(NOTHING, trace, plan).at(batch)
    return max(activations, update) - max(activations - saved, update)


def _forward_share(trace: Trace, plan: Plan, batch: int) -> float:
    """Of a step's FLOPs, which it computes once more where it is checkpointed; a third where none are counted."""
    computed: Counter[Phase] = Counter()
    for operation in trace.operations_under(plan.precision):
        computed[operation.phase] += round(operation.count * operation.flops.at(batch))
    return computed["forward"] / computed.total() if computed.total() else 1 / 3


def _kept_share(layers: Sequence[tuple[int, float]]) -> float:
    """layers: how many, and the bytes that each writes."""
    total = sum(count * written for count, written in layers)
    if total <= 0:
        return 1.0
    between = 1 / math.sqrt(sum(count for count, _ in layers))
    largest = max(written for _, written in layers) / total
    return min(between + max(between, largest), 1.0)
