"""One step of a workload -> its trace: run at two batch sizes under fake tensors, which take no memory and no time.

A model that looks at its numbers while it runs (how many experts were hit?) has no answer under fake tensors; if it
is small it is stepped for real instead.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode, UnsupportedFakeTensorException

from probes.microtrain.autocast_beside import Wait, autocast_beside, not_beside
from probes.microtrain.built import BuiltModel
from probes.microtrain.device_trace import trace_on_device
from probes.microtrain.fake_models import build_fake, build_meta
from probes.microtrain.merging import affine, ordinary_line, same_operations
from probes.microtrain.models import build_model
from probes.microtrain.primed_stepper import PrimedStepper
from probes.microtrain.traced_step import AutocastStep, Pair, trace_autocast, trace_plainly, trace_step
from probes.trace import Trace
from probes.workload.description import InvalidModel, Workload

# Fake batches cost nothing, so they are large enough for what kernels round up (oneDNN's workspaces come in pages).
# 1 would be no good: batch norm refuses it, and shapes of 1 take other paths. Tried in order until both sizes of a pair
# run the same operations.
BATCH_PAIRS = ((16, 32), (48, 96))
REAL_BATCH_PAIRS = ((2, 4),)
# A model that needs real numbers is stepped for real below this: two steps take seconds, and gradients and optimizer
# state make it four times as much.
MAX_REAL_PARAMETER_BYTES = 200_000_000


class Untraceable(RuntimeError):
    """This model's step cannot be traced; the message says why and what to do."""


def trace_workload(workload: Workload, *, plainly: bool = False, devices: bool = False) -> Trace:
    """The trace of one step on the CPU in fp32. The batch size, the data's way and readings of the loss play no part.

    plainly: without what it is under autocast, the order of its allocations, and what kernels take inside, which has
    to be tried for real. devices: with the step as a device runs it, where it can be traced under fake tensors; it
    makes a trace 4 to 13 % longer.
    Raises InvalidModel when the model cannot be built, Untraceable when its step cannot be followed. The user's own
    Python may mix real tensors with fake ones in any way: whatever fails there is tried for real.
    """
    with _old_objects_left_alone():
        return _trace_fake_or_real(workload, plainly, devices)


@contextlib.contextmanager
def _old_objects_left_alone() -> Iterator[None]:
    """A trace makes so many objects that garbage is looked for several times; among all that torch and transformers
    hold, each takes a fifth of a second."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _trace_fake_or_real(workload: Workload, plainly: bool, devices: bool) -> Trace:
    own, asks = workload.model.kind == "python", None
    try:
        return _trace_fake(workload, plainly, devices)
    except InvalidModel:
        if not own:
            raise
    except MemoryError as error:
        raise Untraceable("Memory ran out while this model was traced. Describe a smaller one.") from error
    except Exception as error:
        if not own and not _needs_numbers(error):
            raise Untraceable(_explain(error)) from error
        asks = _asking_operation(error)
    return replace(_trace_real(workload, asks, plainly), devices=devices)


def _trace_fake(workload: Workload, plainly: bool, devices: bool) -> Trace:
    mode = FakeTensorMode()
    with contextlib.ExitStack() as until_traced:
        autocast = not_beside if plainly else until_traced.enter_context(autocast_beside(workload, BATCH_PAIRS[0]))
        built = build_fake(workload.model, mode)
        with mode:
            return _trace(workload, built, BATCH_PAIRS, plainly, autocast, devices=devices)


def _trace_real(workload: Workload, asks: str | None, plainly: bool) -> Trace:
    """For models that look at their numbers. Raises Untraceable when the model is too large to be tried.

    asks: the operation that has no answer without numbers."""
    try:
        _check_size(build_meta(workload.model), asks)
    except Untraceable:
        raise
    except Exception:
        if workload.model.kind != "python":  # its constructor may ask for numbers
            raise
    try:
        built = build_model(workload.model)
        _check_size(built, asks)
        return _trace(workload, built, REAL_BATCH_PAIRS, plainly)
    except (InvalidModel, Untraceable):
        raise
    except Exception as error:
        raise Untraceable(_explain(error)) from error


def _check_size(built: BuiltModel, asks: str | None) -> None:
    if sum(p.numel() * p.element_size() for p in built.module.parameters()) > MAX_REAL_PARAMETER_BYTES:
        by = f" ({asks} gives as much as the numbers say)" if asks else ""
        raise Untraceable(
            f"What this model does depends on the numbers that flow through it{by}, so it cannot be followed without "
            "running it, and it is too large to be run for that. Measure it instead (effort quick), or trace a "
            "smaller one of its kind."
        )


def _needs_numbers(error: BaseException) -> bool:
    """Whether fake tensors failed for having no values."""
    names = {"DataDependentOutputException", "DynamicOutputShapeException", "GuardOnDataDependentSymNode"}
    causes = (error, error.__cause__, error.__context__)
    return any(isinstance(e, UnsupportedFakeTensorException) or type(e).__name__ in names for e in causes)


def _asking_operation(error: BaseException) -> str | None:
    """The name in ATen of the operation that fake tensors have no answer to."""
    causes = (error, error.__cause__, error.__context__)
    asked = (getattr(cause, "func", None) for cause in causes if cause is not None)
    return next((str(func._overloadpacket) for func in asked if isinstance(func, OpOverload)), None)


def _explain(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = lines[0][:200] if lines and not any(mark in lines[0] for mark in "/\\") else "no reason was given"
    what = f"One step of this model fails with {type(error).__name__}: {said.rstrip('.')}."
    return f"{what} Check its sizes and inputs; where they are right, measure it instead (effort quick)."


def _trace(
    workload: Workload,
    built: BuiltModel,
    pairs: Sequence[Pair],
    plainly: bool,
    wait_for_autocast: Wait = not_beside,
    *,
    devices: bool = False,
) -> Trace:
    stepper = PrimedStepper(workload, built)
    for pair in pairs:
        one, other = stepper.record(pair[0]), stepper.record(pair[1], counts=not plainly)
        if same_operations(one.records, other.records):
            break
    recordings, resident = (one, other), stepper.resident_bytes()
    if plainly:
        plain, autocast = trace_plainly(pair, recordings), AutocastStep()
    else:
        plain = trace_step(workload, pair, recordings, resident)
        autocast = wait_for_autocast(pair) or trace_autocast(stepper, pair)
    peaks, under = plain.peaks, autocast.step
    trace = Trace(
        model_key=workload.model.key,
        mode=workload.mode,
        optimizer=workload.optimizer,
        batch_sizes=pair,
        activation_bytes=ordinary_line(peaks),
        activation_peaks=peaks,
        input_bytes=affine(pair, (one.input_bytes, other.input_bytes)),
        operations=plain.operations,
        autocast_operations=under.operations,
        autocast_peaks=under.peaks,
        kernel_peaks=plain.kernel_peaks,
        autocast_kernel_peaks=under.kernel_peaks,
        allocations=plain.allocations,
        autocast_allocations=under.allocations,
        heap_surplus=plain.heap.surplus,
        autocast_heap_surplus=under.heap.surplus,
        heap_fresh=plain.heap.fresh,
        autocast_heap_fresh=under.heap.fresh,
        issued=plain.issued,
        autocast_issued=under.issued,
        autocast_refused=autocast.refused,
        evenly_routed=stepper.evenly_routed or autocast.evenly_routed,
        torch_version=torch.__version__,
        **resident._asdict(),
    )
    return replace(trace, devices=True, device=trace_on_device(stepper, pair, trace)) if devices else trace
