"""What is around an operation in its step: how much else the step moves, and how often it runs the same code."""

from __future__ import annotations

import math
from collections.abc import Iterable

from probes.context import ContextOperation

# Steps that move fewer bytes stay in the nearest caches; of those that move more nothing stays from step to step.
SMALL_STEP_BYTES, LARGE_STEP_BYTES = 2.0**17, 2.0**34
FOOTPRINT_WEIGHT = 0.5  # of an e-fold of the whole step against one of the operation
# The same of how often a step runs what an operation runs: its code is in the caches after the first time, and what
# runs once a step takes up to three times as long.
OFTEN_WEIGHT = 0.5


def surroundings(operations: Iterable[tuple[ContextOperation, int]]) -> tuple[float, dict[tuple[str, str], float]]:
    """Of each operation of a step: the step's footprint_of, and often_of. operations: with their executions."""
    ran = list(operations)
    return footprint_of(sum([moved_bytes(operation) * executions for operation, executions in ran])), often_of(ran)


def footprint_of(moved_bytes: float) -> float:
    """How cold caches are between a step's operations, in e-folds: from the bytes that the whole step moves, up to
    what leaves nothing in any cache."""
    return FOOTPRINT_WEIGHT * math.log(min(max(moved_bytes, SMALL_STEP_BYTES), LARGE_STEP_BYTES))


def often_of(operations: Iterable[tuple[ContextOperation, int]]) -> dict[tuple[str, str], float]:
    """By kernel (kernel_of), how often a step runs it, in e-folds. operations: with their executions."""
    counts: dict[tuple[str, str], int] = {}
    for operation, executions in operations:
        kernel = kernel_of(operation)
        counts[kernel] = counts.get(kernel, 0) + executions
    return {kernel: OFTEN_WEIGHT * math.log(count) for kernel, count in counts.items()}


def kernel_of(operation: ContextOperation) -> tuple[str, str]:
    """What operations share whose code is the same: name and dtype."""
    return operation.name, operation.dtype


def moved_bytes(operation: ContextOperation) -> float:
    return operation.read_bytes + operation.written_bytes
