"""One step of a workload -> its trace: run at two batch sizes under fake tensors, which take no memory and no time.

A model that looks at its numbers while it runs (how many experts were hit?) has no answer under fake tensors; if it
is small it is stepped for real instead.
"""

from __future__ import annotations

import contextlib
import gc
import platform
from collections.abc import Iterator, Sequence

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode, UnsupportedFakeTensorException

from probes.allocations import pack, unpack
from probes.heap_peaks import heap_curves
from probes.heap_process import curves_beside
from probes.heap_steps import TEMPORARIES, Step
from probes.microtrain.built import BuiltModel
from probes.microtrain.failures import explain_step_failure
from probes.microtrain.fake_models import build_fake, build_meta
from probes.microtrain.kernel_allocations import kernel_allocations
from probes.microtrain.kernel_peaks import kernel_peaks
from probes.microtrain.merging import affine, merge, peak_lines, same_operations
from probes.microtrain.models import build_model
from probes.microtrain.primed_stepper import PrimedStepper, Recording, Resident
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


def trace_workload(workload: Workload, *, plainly: bool = False) -> Trace:
    """The trace of one step on the CPU in fp32. The batch size, the data's way and readings of the loss play no part.

    plainly: without what it is under autocast, the order of its allocations, and what kernels take inside, which has
    to be tried for real.
    Raises InvalidModel when the model cannot be built, Untraceable when its step cannot be followed. The user's own
    Python may mix real tensors with fake ones in any way: whatever fails there is tried for real.
    """
    with _old_objects_left_alone():
        return _trace_fake_or_real(workload, plainly)


@contextlib.contextmanager
def _old_objects_left_alone() -> Iterator[None]:
    """A trace makes so many objects that garbage is looked for several times; among all that torch and transformers
    hold, each takes a fifth of a second."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _trace_fake_or_real(workload: Workload, plainly: bool) -> Trace:
    own, asks = workload.model.kind == "python", None
    try:
        return _trace_fake(workload, plainly)
    except InvalidModel:
        if not own:
            raise
    except MemoryError as error:
        raise Untraceable("Memory ran out while this model was traced. Describe a smaller one.") from error
    except Exception as error:
        if not own and not _needs_numbers(error):
            raise Untraceable(_explain(error)) from error
        asks = _asking_operation(error)
    return _trace_real(workload, asks, plainly)


def _trace_fake(workload: Workload, plainly: bool) -> Trace:
    mode = FakeTensorMode()
    built = build_fake(workload.model, mode)
    with mode:
        return _trace(workload, built, BATCH_PAIRS, plainly)


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


def _trace(workload: Workload, built: BuiltModel, pairs: Sequence[tuple[int, int]], plainly: bool) -> Trace:
    stepper = PrimedStepper(workload, built)
    for pair in pairs:
        one, other = (stepper.record(size, counts=not plainly) for size in pair)
        if same_operations(one.records, other.records):
            break
    peaks = peak_lines(pair, one.activation_bytes, other.activation_bytes)
    autocast, refused = (None, "") if plainly else _record_autocast(stepper, pair)
    resident = stepper.resident_bytes()
    packed = "" if plainly else pack(pair, one.log, other.log)
    packed_autocast = pack(pair, *(recording.log for recording in autocast)) if autocast else ""
    recordings = (None if plainly else (one, other), autocast)
    steps = [
        _heap_step(workload, log, resident, pair, found)
        for log, found in zip((packed, packed_autocast), recordings, strict=True)
    ]
    wait_for_autocast = curves_beside(steps[1])
    heap = heap_curves(steps[0])
    kernels = () if plainly else kernel_peaks(pair, one, other)
    autocast_kernels = kernel_peaks(pair, *autocast) if autocast else ()
    autocast_heap = wait_for_autocast()
    return Trace(
        model_key=workload.model.key,
        mode=workload.mode,
        optimizer=workload.optimizer,
        batch_sizes=pair,
        activation_bytes=next((line for line in reversed(peaks) if line.constant >= 0), peaks[0]),
        activation_peaks=peaks,
        input_bytes=affine(pair, (one.input_bytes, other.input_bytes)),
        operations=merge(pair, one.records, other.records),
        autocast_operations=merge(pair, *(recording.records for recording in autocast)) if autocast else (),
        autocast_peaks=peak_lines(pair, *(recording.activation_bytes for recording in autocast)) if autocast else (),
        kernel_peaks=kernels,
        autocast_kernel_peaks=autocast_kernels,
        allocations=packed,
        autocast_allocations=packed_autocast,
        heap_surplus=heap.surplus,
        autocast_heap_surplus=autocast_heap.surplus,
        heap_fresh=heap.fresh,
        autocast_heap_fresh=autocast_heap.fresh,
        issued=other.issued,
        autocast_issued=autocast[1].issued if autocast else None,
        autocast_refused=refused,
        evenly_routed=stepper.evenly_routed,
        torch_version=torch.__version__,
        **resident._asdict(),
    )


def _heap_step(
    workload: Workload,
    packed: str,
    resident: Resident,
    batch_sizes: tuple[int, int],
    recordings: tuple[Recording, Recording] | None,
) -> Step | None:
    """None where the C library is not the one whose rules are known, or the step does not run like this."""
    allocations = unpack(packed)
    if platform.libc_ver()[0] != "glibc" or allocations is None or recordings is None:
        return None
    temporaries = TEMPORARIES.get(workload.optimizer, 0) if workload.mode == "training" else 0
    kernels = kernel_allocations(batch_sizes, *recordings)
    return Step(allocations, (temporaries, resident.parameter_tensors), recordings[0].inputs, kernels)


def _record_autocast(stepper: PrimedStepper, pair: tuple[int, int]) -> tuple[tuple[Recording, Recording] | None, str]:
    """The step under autocast, or why it does not run so. What fake tensors alone cannot do is no reason: they raise
    classes of their own, and torch's operations plain RuntimeErrors."""
    try:
        return (stepper.record(pair[0], "bf16"), stepper.record(pair[1], "bf16", counts=True)), ""
    except Exception as error:  # noqa: BLE001 - the trace in fp32 stands without it
        by_torch = type(error) in (RuntimeError, NotImplementedError)
        return None, str(explain_step_failure(error)) if by_torch else ""
