"""Whether operation times that somebody else wrote can be reckoned with: known words, bounded numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, get_args

from probes import bounds
from probes.checked import (
    Refused,
    check_choice,
    check_count,
    check_list,
    check_number,
    check_object,
    check_text,
    member,
)
from probes.context import Context, ContextOperation, OperationCost
from probes.issued_check import check_issued
from probes.trace import Kind
from probes.workload.description import MODES, Plan

NAME_PATTERN = r"[\w.]+"
VARIANT_PATTERN = r"[\w-]*"


def check_contexts(document: dict[str, Any], check_plan: Callable[[Any, str], Plan]) -> tuple[Context, ...]:
    """The members that contexts_to_json writes; none are no contexts. Raises Refused."""
    rows = check_list(document.get("operations", ()), "operations", bounds.MAX_TRACE_OPERATIONS)
    operations = [_operation(row, f"operations[{place}]") for place, row in enumerate(rows)]
    contexts = check_list(document.get("contexts", ()), "contexts", bounds.MAX_PROFILE_NETWORKS)
    return tuple(_context(row, f"contexts[{place}]", operations, check_plan) for place, row in enumerate(contexts))


def _context(
    value: Any, place: str, operations: Sequence[ContextOperation], check_plan: Callable[[Any, str], Plan]
) -> Context:
    row = check_object(value, place)
    costs = check_list(member(row, "costs", place), f"{place}.costs", bounds.MAX_TRACE_OPERATIONS)
    return Context(
        check_text(member(row, "network", place), f"{place}.network", bounds.MAX_NAME_CHARACTERS),
        check_count(member(row, "batch_size", place), f"{place}.batch_size", 1, bounds.MAX_BATCH_SIZE),
        check_choice(member(row, "mode", place), f"{place}.mode", MODES),
        check_plan(member(row, "plan", place), f"{place}.plan"),
        tuple(_cost(each, f"{place}.costs[{index}]", operations) for index, each in enumerate(costs)),
        check_issued(row.get("issued"), f"{place}.issued"),
    )


def _operation(value: Any, place: str) -> ContextOperation:
    name, kind, variant, dtype, *sizes = _entries(value, place, len(ContextOperation._fields))
    flops, read, written = (check_number(size, place, 0.0, bounds.MAX_POINT_QUANTITY) for size in sizes)
    return ContextOperation(
        check_text(name, place, bounds.MAX_NAME_CHARACTERS, NAME_PATTERN),
        check_choice(kind, place, get_args(Kind)),
        check_text(variant, place, 64, VARIANT_PATTERN),
        check_text(dtype, place, 64, NAME_PATTERN),
        flops,
        read,
        written,
    )


def _cost(value: Any, place: str, operations: Sequence[ContextOperation]) -> OperationCost:
    at, count, seconds, spread = _entries(value, place, len(OperationCost._fields))
    return OperationCost(
        operations[check_count(at, place, 0, len(operations) - 1)],
        check_count(count, place, 1, bounds.MAX_MODULES * 100),
        check_number(seconds, place, bounds.MIN_POINT_SECONDS, bounds.MAX_POINT_SECONDS),
        check_number(spread, place, 0.0, bounds.MAX_POINT_SECONDS),
    )


def _entries(value: Any, place: str, expected: int) -> Sequence[Any]:
    row = check_list(value, place, expected)
    if len(row) != expected:
        raise Refused(f"{place} has {len(row)} entries where {expected} are expected")
    return row
