"""What a step runs under autocast beyond what was traced so: autocast to fp16, which is traced to bf16, and a step that
was traced in fp32 alone, of a model that is known by its totals, or whose step could not be traced under autocast."""

from __future__ import annotations

from dataclasses import replace

from app.advisor.memory_model.peaks import Peaks
from probes.trace import Affine, Operation, Phase, Trace

WIDE = "float32"
NARROW = {"bf16": "bfloat16", "fp16": "float16"}  # what autocast casts to, by precision
TRACED = "bfloat16"  # what autocast cast to in a trace
HALF = 0.5  # of the bytes: numbers of two in place of four
NOTHING = Affine(0.0, 0.0)


def operations_under(trace: Trace, precision: str) -> tuple[Operation, ...]:
    """As they were traced, in fp16 on numbers of that type. Where they were not: those in fp32, of which all but the
    optimizer's move half the bytes, and casts of each weight once a step and of its gradient back
    (docs/decisions/0003-how-instant-estimates.md)."""
    if not _is_untraced(trace, precision):
        return _in_type_of(trace.operations_under(precision), precision)
    narrow = NARROW[precision]
    return (*(_narrowed(operation, narrow) for operation in trace.operations), *_casts(trace, narrow))


def _in_type_of(operations: tuple[Operation, ...], precision: str) -> tuple[Operation, ...]:
    """Autocast to fp16 runs the operations of that to bf16, on numbers of another type, and kernels of that type."""
    if precision not in NARROW or NARROW[precision] == TRACED:
        return operations
    narrow = NARROW[precision]
    return tuple(replace(each, dtype=narrow) if each.dtype == TRACED else each for each in operations)


def fresh_bytes(trace: Trace, precision: str, batch_size: float) -> float:
    """That a step on a CPU finds fresh of the system. 0 where nobody knows."""
    known = trace.heap_fresh_under(precision)
    if known or not _is_untraced(trace, precision):
        return Peaks(knots=known).at(batch_size)
    return HALF * Peaks(knots=trace.heap_fresh).at(batch_size)


def _is_untraced(trace: Trace, precision: str) -> bool:
    return precision in NARROW and bool(trace.operations) and not trace.autocast_operations


def _narrowed(operation: Operation, narrow: str) -> Operation:
    """Numbers of other types stay what they are, and an optimizer steps in fp32."""
    if operation.phase == "optimizer" or operation.dtype != WIDE:
        return operation
    read, written = (_times(line, HALF) for line in (operation.read_bytes, operation.written_bytes))
    return replace(operation, dtype=narrow, read_bytes=read, written_bytes=written)


def _times(line: Affine, factor: float) -> Affine:
    return Affine(line.constant * factor, line.per_sample * factor)


def _casts(trace: Trace, narrow: str) -> tuple[Operation, ...]:
    """Four bytes read and two written, and the other way about."""
    if not trace.parameter_tensors:
        return ()
    whole = Affine(trace.parameter_bytes / trace.parameter_tensors, 0.0)

    def cast(phase: Phase, dtype: str, read: Affine, written: Affine) -> Operation:
        return Operation("copy", "aten._to_copy", phase, dtype, trace.parameter_tensors, NOTHING, read, written)

    weights = cast("forward", narrow, whole, _times(whole, HALF))
    gradients = cast("backward", WIDE, _times(whole, HALF), whole)
    return (weights, gradients) if trace.mode == "training" else (weights,)
