"""What is said of a step that fake tensors could not follow."""

from __future__ import annotations

from pathlib import Path
from traceback import walk_tb

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode, UnsupportedFakeTensorException

from probes.microtrain.building.fake_models import build_fake
from probes.microtrain.failures import (
    KEPT_FROM_A_TRACE,
    first_line,
    is_kept_from_a_trace,
    is_out_of_memory,
    is_unsupported,
)
from probes.microtrain.feeding import batch_bytes
from probes.microtrain.models import build_model
from probes.microtrain.step import make_step
from probes.microtrain.traces.traceable import OTHER_REAL_SIZES, first_made
from probes.workload.description import InvalidModel, Plan, Workload

_TORCH = Path(torch.__file__).parent
# What torch says of shapes that do not go together, of tensors with numbers and of those without.
_OF_SHAPES = (
    "must match the size of tensor",
    "Attempting to broadcast a dimension",
    "shapes cannot be multiplied",
    "must have same reduction dim",
    "Sizes of tensors must match except",
    "is invalid for input of size",
    "channels, but got",
    "Kernel size can't be greater than actual input size",
    "k out of range",
    "k not in range for dimension",
)
# A step that has failed, as a rule at once, is tried again where its batch is no larger than those that a trace runs
# for real, and takes no more than this: where it gets through after all, nobody else is traced meanwhile.
FEW, MOST_TRIED, MOST_TRIED_BYTES = 2, max(OTHER_REAL_SIZES), 16_000_000


def needs_numbers(error: BaseException) -> bool:
    """Whether fake tensors failed for having no values."""
    names = {"DataDependentOutputException", "DynamicOutputShapeException", "GuardOnDataDependentSymNode"}
    causes = (error, error.__cause__, error.__context__)
    return any(isinstance(e, UnsupportedFakeTensorException) or type(e).__name__ in names for e in causes)


def explain_numbers(error: BaseException) -> str:
    asks = _asking_operation(error)
    by = "" if asks is None else f" ({asks} gives as much as the numbers say)"
    if asks == "aten._local_scalar_dense":  # .item(), and what `if` and `while` ask of a tensor
        by = " (it reads a number or a truth from a tensor, as if and while do)"
    return (
        f"What this model does depends on the numbers that flow through it{by}, so it cannot be followed without "
        "running it, and it is too large to be run for that. Measure it instead (effort quick), or trace a "
        "smaller one of its kind."
    )


def _asking_operation(error: BaseException) -> str | None:
    """The name in ATen of the operation that fake tensors have no answer to."""
    causes = (error, error.__cause__, error.__context__)
    asked = (getattr(cause, "func", None) for cause in causes if cause is not None)
    return next((str(func._overloadpacket) for func in asked if isinstance(func, OpOverload)), None)


def explain_step(error: BaseException, workload: Workload) -> str:
    """Of one under fake tensors, of a model that is no Python of the user's."""
    if _is_refusal(error) or (_is_of_shapes(error) and _fails_unwatched(workload)):
        return f"{_fails(error)} Check its sizes and inputs: measured with these it would fail as well."
    return _explain_failing(error)


def _explain_failing(error: BaseException) -> str:
    return f"{_fails(error)} Check its sizes and inputs; where they are right, measure it instead (effort quick)."


def _fails(error: BaseException) -> str:
    return f"One step of this model fails with {type(error).__name__}: {_said(error)}."


def _is_refusal(error: BaseException) -> bool:
    """Whether the model's own code refuses what it was given, as it would of tensors with numbers: what torch raises
    may come of their having none."""
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    code = Path(frames[-1].f_code.co_filename) if frames else None
    return isinstance(error, ValueError) and code is not None and not code.is_relative_to(_TORCH)


def _is_of_shapes(error: BaseException) -> bool:
    """Whether sizes contradict each other, which tensors without numbers have as well. (An index that lies in a tensor
    is a number: of those no error comes here.)"""
    return isinstance(error, IndexError) or (
        isinstance(error, RuntimeError) and any(words in str(error) for words in _OF_SHAPES)
    )


def _fails_unwatched(workload: Workload) -> bool:
    """Whether sizes contradict each other at the batch asked for as well, where nobody watches and nothing is taken for
    granted: a trace has batches of its own, and tells some results by rules."""
    mode = FakeTensorMode()
    built = build_fake(workload.model, mode)
    built.module.train(workload.mode == "training")
    with mode:
        try:
            built.forward(built.module, built.make_batch(workload.batch_size, None))
        except Exception as error:  # noqa: BLE001 - it may miss numbers, which the step that was traced did not ask for
            return _is_of_shapes(error)
    return False


def explain_real_step(error: BaseException, workload: Workload) -> str:
    """Of one with real numbers."""
    if is_kept_from_a_trace(error):
        return KEPT_FROM_A_TRACE
    unwatched = _failure_unwatched(workload)
    if unwatched is None:
        return _explain_failing(error)
    if is_unsupported(unwatched):
        return f"{_fails(unwatched)} Measured on this CPU it fails as well; another device may run it (effort quick)."
    return f"{_fails(unwatched)} Check its code and its inputs: measured with these it would fail as well."


def _failure_unwatched(workload: Workload) -> Exception | None:
    """What becomes of a real step of the batch asked for, where nobody watches: what fails where it is watched alone is
    to be measured. None as well where nobody knows: its batch is too large to be tried, or memory ran out."""
    if workload.batch_size > MOST_TRIED:
        return None
    try:
        built = build_model(workload.model)
        few, batch = first_made(built, (FEW, workload.batch_size))
        if batch_bytes(batch) * workload.batch_size > MOST_TRIED_BYTES * few:
            return None
        batch = built.make_batch(workload.batch_size, None)
        plan = Plan("cpu", "fp32")
        make_step(built, [batch], plan, mode=workload.mode, optimizer=workload.optimizer, data="resident")()
    except Exception as error:  # noqa: BLE001
        return None if is_out_of_memory(error) or isinstance(error, InvalidModel) else error
    return None


def explain_following(error: BaseException) -> str:
    """Of a model that fake tensors did not get through: whether its step fails nobody knows."""
    return (
        f"One step of this model could not be followed without running it ({type(error).__name__}: {_said(error)}), "
        "and it is too large to be run for that. Check its sizes and inputs; where they are right, measure it instead "
        "(effort quick)."
    )


def explain_building(error: BaseException, most_bytes: int) -> str:
    """Of a model that is not made without its memory."""
    return (
        f"This model is not traced without memory for its weights: {_said(error)}. To be built with them it is too "
        f"large: they take more than {most_bytes / 1e9:g} GB. Measure it instead (effort quick), or trace a smaller "
        "one of its kind."
    )


def _said(error: BaseException) -> str:
    return (first_line(error) if str(error).strip() else "no reason was given").rstrip(".")
