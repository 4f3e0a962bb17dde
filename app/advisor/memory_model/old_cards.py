"""What attention takes on a card that is too old for the flash kernel, where a trace tells of it: there it is products,
and all scores are made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import prod

from probes.trace import Affine, Operation, Trace

# Compute capability from which flash runs (check_flash_attention_hardware_support in
# aten/src/ATen/native/transformers/cuda/sdp_utils.cpp). Older cards have the memory-efficient kernel alone.
FLASH = (8, 0)
ATTENTION = "crosspoint.scaled_dot_product_attention"
HALF = ("bfloat16", "float16")

Alike = tuple[str, tuple[tuple[int, ...], ...]]


def without_flash(trace: Trace) -> Trace:
    """The trace of a step on a device, with as much more at its peak as attention takes where flash does not run: at
    most, but where a checkpoint spans several layers, of which a trace does not tell. In which order it is allocated
    nobody knows then."""
    plain = _most_taken(trace, trace.operations)
    under = _most_taken(trace, trace.autocast_operations, autocast=True)
    if not plain and not under:
        return trace
    return replace(
        trace,
        activation_bytes=_with(trace.activation_bytes, plain),
        activation_peaks=tuple(_with(line, plain) for line in trace.activation_peaks),
        autocast_peaks=tuple(_with(line, under) for line in trace.autocast_peaks),
        allocations="" if plain else trace.allocations,
        autocast_allocations="" if under else trace.autocast_allocations,
    )


def _with(line: Affine, per_sample: float) -> Affine:
    return Affine(line.constant, line.per_sample + per_sample)


def _most_taken(trace: Trace, operations: Sequence[Operation], *, autocast: bool = False) -> float:
    """Bytes of each sample. Products compute in fp32, of copies of their inputs in which each query has keys of its
    own (Ways in probes.microtrain.traces.device_ways). For the backward they keep these and the scores, and of what is
    dropped the rest of the scores and a truth value of each. While a layer runs both are there twice, scaled and not,
    or as gradients."""
    kept = passing = 0.0
    counts = _count_kept(operations)
    for operation in operations:
        if operation.name != ATTENTION or not _needs_flash(operation, autocast=autocast):
            continue
        query, key, value = shapes = operation.shapes[:3]
        scores = prod(query[:-1]) * key[-2]
        inputs = prod(query[:-2]) * (query[-2] * query[-1] + key[-2] * (key[-1] + value[-1]))
        dropped = 5.0 * scores if _may_drop(trace, operation) else 0.0
        kept += counts.pop((operation.dtype, shapes), 0) * (4.0 * (scores + inputs) + dropped)
        passing = max(passing, 8.0 * (scores + inputs))
    return (kept + passing) / trace.batch_sizes[0]


def _count_kept(operations: Sequence[Operation]) -> Counter[Alike]:
    """By type and shapes, of how many layers something is kept at once: of those that have a backward, but of what
    checkpoints compute again there of one at a time. Without gradients nothing is kept, whatever the step is for."""
    kept, again = Counter[Alike](), Counter[Alike]()
    for operation in operations:
        if operation.name == f"{ATTENTION}_backward":  # of the gradient first
            kept[operation.dtype, operation.shapes[1:4]] += operation.count
        elif operation.name == ATTENTION and operation.phase == "backward":
            again[operation.dtype, operation.shapes[:3]] += operation.count
    for each, count in again.items():
        kept[each] = max(kept[each] - count, 0) + 1
    return kept


def _needs_flash(operation: Operation, *, autocast: bool) -> bool:
    """Whether the memory-efficient kernel does not take it: of heads that share keys, or not of eights of numbers. It
    takes no bf16 on these cards; a step under autocast is traced in bf16 and runs there in fp16."""
    query, key, value = operation.shapes[:3]
    unfit = query[1] != key[1] or query[-1] % 8 != 0 or value[-1] % 8 != 0
    return operation.dtype in HALF and (unfit or (operation.dtype == "bfloat16" and not autocast))


def _may_drop(trace: Trace, operation: Operation) -> bool:
    """Where fp32 is products as well, its step tells."""
    query, key, _ = operation.shapes[:3]
    whole = any(each.name == ATTENTION and each.shapes[:2] == (query, key) for each in trace.operations)
    scores = (*query[:-1], key[-2])
    drops = any(each.name == "aten.native_dropout" and each.shapes[0] == scores for each in trace.operations)
    return whole or drops
