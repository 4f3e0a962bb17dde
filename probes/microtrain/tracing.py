"""One step of a workload -> its trace: run at two batch sizes under fake tensors, which take no memory and no time.

A model that looks at its numbers while it runs (how many experts were hit?) has no answer under fake tensors; if it
is small it is stepped for real instead.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from probes.microtrain.building.built import BuiltModel, InvalidLoss, TooManyBytes
from probes.microtrain.building.fake_models import build_fake, build_meta, build_within, fake_python
from probes.microtrain.building.samples_asked import InvalidBatch, OtherSamples
from probes.microtrain.failures import Failure, Untraceable, is_out_of_memory
from probes.microtrain.feeding import batch_bytes
from probes.microtrain.models import build_model
from probes.microtrain.step import UnsupportedWorkload
from probes.microtrain.traces.asking import Guesses, as_usual, guessing
from probes.microtrain.traces.autocast_beside import Wait, autocast_beside, not_beside
from probes.microtrain.traces.device_trace import trace_on_device
from probes.microtrain.traces.fake_results import forgotten_afterwards
from probes.microtrain.traces.merging import affine, ordinary_line, same_operations
from probes.microtrain.traces.other_batches import check_growth, check_larger, check_same_step
from probes.microtrain.traces.primed_stepper import PrimedStepper, Recording, Resident
from probes.microtrain.traces.traceable import OTHER_REAL_SIZES, check_traceable, first_made
from probes.microtrain.traces.traced_step import (
    AutocastStep,
    Pair,
    Recordings,
    TracedStep,
    trace_autocast,
    trace_plainly,
    trace_step,
)
from probes.microtrain.traces.untraced import (
    explain_building,
    explain_following,
    explain_numbers,
    explain_real_step,
    explain_step,
    needs_numbers,
)
from probes.trace import Trace
from probes.workload.description import InvalidModel, Workload

__all__ = ["Untraceable", "trace_workload"]


class _TooLarge(Untraceable):
    """To be built for its trace, or to be run for it."""


# What these say is final, and fit to be passed on.
_TOLD = (Untraceable, UnsupportedWorkload, Failure, InvalidBatch, InvalidLoss)

# Fake batches cost nothing, so they are large enough for what kernels round up (oneDNN's workspaces come in pages).
# 1 would be no good: batch norm refuses it, and shapes of 1 take other paths. Tried in order until both sizes of a pair
# run the same operations.
BATCH_PAIRS = ((16, 32), (48, 96))
REAL_BATCH_PAIRS = ((2, 4),)
# Where a model is stepped for real, chance says what it does, which evens out over many samples: of a light model there
# may be as many as fake ones, but for another number, by which such a trace is known.
LIGHT_BATCH_PAIRS = ((20, 40),)
LIGHT_PARAMETER_BYTES, LIGHT_SAMPLE_BYTES = 4_000_000, 64 * 1024
# A model that needs real numbers is stepped for real below this: two steps take seconds, and gradients and optimizer
# state make it four times as much.
MAX_REAL_PARAMETER_BYTES = 200_000_000
# What is built for real and stepped under fake tensors takes its weights' memory, and no more.
MAX_BUILT_PARAMETER_BYTES = 4_000_000_000
# Weights that are tied, or put in the place of others, are there twice until they are; what stays is looked at then.
WHILE_BUILT = 2


def trace_workload(workload: Workload, *, plainly: bool = False, devices: bool = False) -> Trace:
    """The trace of one step on the CPU in fp32. The batch size, the data's way and readings of the loss play no part.

    plainly: without what it is under autocast, the order of its allocations, and what kernels take inside, which has
    to be tried for real. devices: with the step as a device runs it, where it can be traced under fake tensors; it
    makes a trace 4 to 13 % longer.
    Raises InvalidModel when the model cannot be built, UnsupportedWorkload when nobody can step it like this,
    Untraceable when its step cannot be followed, and Failure when memory ran out. The user's own Python may mix real
    tensors with fake ones in any way: whatever fails there is tried for real.
    """
    with _old_objects_left_alone(), forgotten_afterwards():
        try:
            return _trace_fake_or_real(workload, plainly, devices)
        except OtherSamples as error:  # of the sizes that are traced; it may have those that were asked for
            raise Untraceable(f"{error} A trace takes batches of several sizes.") from error


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
    own = workload.model.kind == "python"
    try:
        return _trace_fake(workload, plainly, devices)
    except _TOLD:
        raise
    except InvalidModel as error:
        if not own:
            raise
        failed: Exception = error
    except Exception as error:
        _refuse_out_of_memory(error)
        if not own and not needs_numbers(error):
            raise Untraceable(explain_step(error, workload)) from error
        failed = error
    attempt = _trace_fake
    if own and not needs_numbers(failed):
        attempt = partial(_trace_otherwise, failed=failed)
        try:
            return attempt(workload, plainly, devices)
        except _TOLD:
            raise
        except Exception as error:  # noqa: BLE001 - it is tried for real, and what fails there is told
            _refuse_out_of_memory(error)
            failed = error
    try:
        return replace(_trace_real(workload, failed, plainly), devices=devices)
    except _TooLarge:
        traced = _trace_as_usual(attempt, workload, plainly, devices) if needs_numbers(failed) else None
        if traced is None:
            raise
        return traced


def _trace_as_usual(
    attempt: Callable[[Workload, bool, bool], Trace], workload: Workload, plainly: bool, devices: bool
) -> Trace | None:
    """With open questions, whose answers differ by little, taken for "no". None where something else was asked."""
    with as_usual():
        try:
            return attempt(workload, plainly, devices)
        except Exception as error:  # noqa: BLE001 - why it was refused is known
            _refuse_out_of_memory(error)
            return None


def _trace_fake(workload: Workload, plainly: bool, devices: bool) -> Trace:
    mode = FakeTensorMode()
    with contextlib.ExitStack() as until_traced:
        autocast = not_beside if plainly else until_traced.enter_context(autocast_beside(workload, BATCH_PAIRS[0]))
        built = build_fake(workload.model, mode)
        with mode:
            return _trace(workload, built, BATCH_PAIRS, plainly, autocast, devices=devices)


def _trace_otherwise(workload: Workload, plainly: bool, devices: bool, *, failed: Exception) -> Trace:
    """The user's own Python as shells, or within. Raises what came of the shells where neither gets through."""
    try:
        return _trace_shells(workload, plainly, devices, failed=failed)
    except Exception as error:
        _refuse_out_of_memory(error)
        if needs_numbers(error) or (isinstance(error, _TOLD) and not isinstance(error, _TooLarge)):
            raise
        try:
            return _trace_within(workload, plainly, devices)
        except _TOLD:
            raise
        except Exception as another:
            _refuse_out_of_memory(another)
            raise error from another


def _trace_within(workload: Workload, plainly: bool, devices: bool) -> Trace:
    """The user's own Python, built under fake tensors: it may keep its parameters where no copy reaches them, as in an
    optimizer for each, which a hook steps, or tensors of its own that are too large to be made."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    built = build_within(workload.model, mode)
    with mode:
        return _trace(workload, built, BATCH_PAIRS, plainly, devices=devices)


def _trace_shells(workload: Workload, plainly: bool, devices: bool, *, failed: Exception) -> Trace:
    """The user's own Python, built for real and stepped under fake tensors: it may load its weights, which nothing does
    on the meta device, and keep tensors that torch knows nothing of."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    built = fake_python(_build_real(workload, failed, MAX_BUILT_PARAMETER_BYTES), mode)
    with mode:
        return _trace(workload, built, BATCH_PAIRS, plainly, devices=devices)


def _trace_real(workload: Workload, failed: Exception, plainly: bool) -> Trace:
    """For models that look at their numbers. Raises Untraceable when the model is too large to be tried.

    failed: what became of it under fake tensors."""
    try:
        built = _build_real(workload, failed, MAX_REAL_PARAMETER_BYTES)
        return _trace(workload, built, _real_pairs(built), plainly)
    except (InvalidModel, *_TOLD):
        raise
    except Exception as error:
        _refuse_out_of_memory(error)
        raise Untraceable(explain_real_step(error, workload)) from error


def _build_real(workload: Workload, failed: Exception, most_bytes: int) -> BuiltModel:
    """Raises Untraceable where its parameters take more bytes, before it takes them."""
    try:
        built = build_meta(workload.model)
    except Exception:  # of the user's own Python a constructor may ask for numbers
        if workload.model.kind != "python":
            raise
    else:
        _check_size(built, failed, most_bytes)
    with contextlib.suppress(TooManyBytes):  # and its traceback, which holds what was built
        built = build_model(workload.model, WHILE_BUILT * most_bytes)
        _check_size(built, failed, most_bytes)
        return built
    raise _too_large(failed, most_bytes) from failed


def _check_size(built: BuiltModel, failed: Exception, most_bytes: int) -> None:
    if _parameter_bytes(built) > most_bytes:
        raise _too_large(failed, most_bytes) from failed


def _too_large(failed: Exception, most_bytes: int) -> Untraceable:
    if needs_numbers(failed):
        return _TooLarge(explain_numbers(failed))
    unbuilt = isinstance(failed, InvalidModel)
    return _TooLarge(explain_building(failed, most_bytes) if unbuilt else explain_following(failed))


def _parameter_bytes(built: BuiltModel) -> int:
    return sum(p.numel() * p.element_size() for p in built.module.parameters())


def _real_pairs(built: BuiltModel) -> Sequence[Pair]:
    size, batch = first_made(built, (REAL_BATCH_PAIRS[0][0], *OTHER_REAL_SIZES))
    if size in OTHER_REAL_SIZES:
        return ((size, 2 * size),)
    light = _parameter_bytes(built) <= LIGHT_PARAMETER_BYTES and batch_bytes(batch) <= size * LIGHT_SAMPLE_BYTES
    return LIGHT_BATCH_PAIRS if light else REAL_BATCH_PAIRS


def _refuse_out_of_memory(error: Exception) -> None:
    """Raises a Failure of its own: others may have held the memory, and another try may bring a trace."""
    if is_out_of_memory(error):
        raise Failure(
            "out-of-memory",
            "Memory ran out while this model was traced. Ask again when more of it is free, or describe a smaller one.",
        ) from error


def _trace(
    workload: Workload,
    built: BuiltModel,
    pairs: Sequence[Pair],
    plainly: bool,
    wait_for_autocast: Wait = not_beside,
    *,
    devices: bool = False,
) -> Trace:
    check_traceable(workload, built, pairs[0][0])
    with guessing() as guesses:
        try:
            return _trace_guessing(workload, built, pairs, plainly, wait_for_autocast, guesses, devices=devices)
        except _TOLD:
            raise
        except Exception as error:
            _refuse_out_of_memory(error)
            if guesses.given and not needs_numbers(error):  # it may have failed for a guess
                raise DataDependentOutputException(torch.ops.aten._local_scalar_dense.default) from error
            raise


def _trace_guessing(
    workload: Workload,
    built: BuiltModel,
    pairs: Sequence[Pair],
    plainly: bool,
    wait_for_autocast: Wait,
    guesses: Guesses,
    *,
    devices: bool,
) -> Trace:
    stepper = PrimedStepper(workload, built, guesses)
    for pair in pairs:
        one, other = stepper.record(pair[0]), stepper.record(pair[1], counts=not plainly)
        if same_operations(one.records, other.records):
            break
    if guesses.given:
        _check_guesses(stepper, pair, (one, other))
    own_code = workload.model.kind == "python" and pair in BATCH_PAIRS
    check_larger(pair, one, other)
    check_growth(stepper, pair, one, other, by_chance=not own_code)
    recordings, resident = (one, other), stepper.resident_bytes()
    if plainly:
        plain, autocast = trace_plainly(pair, recordings), AutocastStep()
    else:
        plain = trace_step(workload, pair, recordings, resident)
        autocast = wait_for_autocast(pair) or trace_autocast(stepper, pair)
    trace = _put_together(stepper, pair, recordings, resident, plain, autocast)
    if devices:
        trace = replace(trace, devices=True, device=trace_on_device(stepper, pair, trace))
    if own_code:
        check_same_step(stepper, pair, one, other)
    return trace


def _put_together(
    stepper: PrimedStepper,
    pair: Pair,
    recordings: Recordings,
    resident: Resident,
    plain: TracedStep,
    autocast: AutocastStep,
) -> Trace:
    """Of the CPU's step."""
    workload, (one, other) = stepper.workload, recordings
    peaks, under = plain.peaks, autocast.step
    return Trace(
        model_key=workload.model.key,
        mode=workload.mode,
        optimizer=workload.optimizer,
        batch_sizes=pair,
        activation_bytes=ordinary_line(peaks),
        activation_peaks=peaks,
        update_peaks=plain.update_peaks,
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
        layers_dropped=stepper.layers_dropped,
        compiled=stepper.built.compiled,
        torch_version=torch.__version__,
        **resident._asdict(),
    )


def _check_guesses(stepper: PrimedStepper, pair: Pair, recordings: Sequence[Recording]) -> None:
    """Raises as fake tensors do where the step hangs on numbers that were guessed."""
    for batch_size, recording in zip(pair, recordings, strict=True):
        if stepper.record(batch_size, large=True).records != recording.records:
            raise DataDependentOutputException(torch.ops.aten._local_scalar_dense.default)
