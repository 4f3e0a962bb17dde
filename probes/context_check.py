"""Whether operation times that somebody else wrote can be reckoned with: known words, bounded numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, NamedTuple, get_args

from probes import bounds
from probes.checked import (
    Refused,
    check_choice,
    check_count,
    check_flag,
    check_list,
    check_number,
    check_object,
    check_place,
    check_text,
    member,
)
from probes.context import CLOCKS, KERNEL_MEMBERS, Context, ContextOperation, OperationCost
from probes.issued import Issued
from probes.issued_check import check_issued
from probes.trace import Kind
from probes.workload.description import MODES, Mode, Plan

NAME_PATTERN = r"[\w.]+"
VARIANT_PATTERN = r"[\w-]*"
SIZES = 3  # flops, read, written; a grain may follow


def check_contexts(document: dict[str, Any], check_plan: Callable[[Any, str], Plan]) -> tuple[Context, ...]:
    """The members that contexts_to_json writes, or wrote for profiles of schema versions 1 and 2; none are no contexts.
    Raises Refused."""
    rows = check_list(document.get("kernels", ()), "kernels", bounds.MAX_TRACE_OPERATIONS)
    kernels = [_kernel(row, f"kernels[{place}]") for place, row in enumerate(rows)]
    rows = check_list(document.get("operations", ()), "operations", bounds.MAX_TRACE_OPERATIONS)
    operations = [_operation(row, f"operations[{place}]", kernels) for place, row in enumerate(rows)]
    rows = check_list(document.get("steps", ()), "steps", bounds.MAX_PROFILE_NETWORKS)
    steps = [_step(row, f"steps[{place}]", operations) for place, row in enumerate(rows)]
    rows = check_list(document.get("contexts", ()), "contexts", bounds.MAX_PROFILE_NETWORKS)
    return tuple(_context(row, f"contexts[{place}]", steps, operations, check_plan) for place, row in enumerate(rows))


class _Step(NamedTuple):
    """What a step of a network runs: operations, and how many equal ones of each."""

    network: str
    batch_size: int
    mode: Mode
    issued: Issued | None
    ran: Sequence[tuple[ContextOperation, int]]


def _step(row: Any, place: str, operations: Sequence[ContextOperation]) -> _Step:
    row = check_object(row, place)
    ran = check_list(member(row, "operations", place), f"{place}.operations", bounds.MAX_TRACE_OPERATIONS)
    return _Step(
        *_network(row, place), tuple(_ran(each, f"{place}.operations[{at}]", operations) for at, each in enumerate(ran))
    )


def _network(row: dict[str, Any], place: str) -> tuple[str, int, Mode, Issued | None]:
    return (
        check_text(member(row, "network", place), f"{place}.network", bounds.MAX_NAME_CHARACTERS),
        check_count(member(row, "batch_size", place), f"{place}.batch_size", 1, bounds.MAX_BATCH_SIZE),
        check_choice(member(row, "mode", place), f"{place}.mode", MODES),
        check_issued(row.get("issued"), f"{place}.issued"),
    )


def _context(
    row: Any,
    place: str,
    steps: Sequence[_Step],
    operations: Sequence[ContextOperation],
    check_plan: Callable[[Any, str], Plan],
) -> Context:
    row = check_object(row, place)
    plan = check_plan(member(row, "plan", place), f"{place}.plan")
    if "costs" in row:  # schema version 1
        rows = check_list(row["costs"], f"{place}.costs", bounds.MAX_TRACE_OPERATIONS)
        network, batch_size, mode, issued = _network(row, place)
        costs = tuple(_cost(each, f"{place}.costs[{at}]", operations) for at, each in enumerate(rows))
        return Context(network, batch_size, mode, plan, costs, issued)
    step = steps[check_place(member(row, "step", place), f"{place}.step", len(steps), "step")]
    count = len(step.ran)
    seconds = _numbers(row, "nanoseconds", place, count, bounds.MIN_POINT_SECONDS, 9)
    spreads = _numbers(row, "spreads", place, count, 0.0, 2)
    costs = tuple(OperationCost(*ran, *told) for ran, *told in zip(step.ran, seconds, spreads, strict=True))
    clock = check_choice(row.get("clock", "host"), f"{place}.clock", CLOCKS)
    reckoned = check_flag(row.get("reckoned", False), f"{place}.reckoned")
    return Context(step.network, step.batch_size, step.mode, plan, costs, step.issued, clock, reckoned)


def _numbers(row: dict[str, Any], name: str, place: str, expected: int, least: float, places: int) -> list[float]:
    """So many, each written with its decimal point so many places to the right: taken back as decimals, so that none is
    another number than was written."""
    place, factor = f"{place}.{name}", 10.0**places
    values = _entries(member(row, name, place), place, expected)
    numbers = [check_number(each, place, least * factor, bounds.MAX_POINT_SECONDS * factor) for each in values]
    return [float(Decimal(repr(number)).scaleb(-places)) for number in numbers]


class _Kernel(NamedTuple):
    """What operations of any size share."""

    name: str
    kind: Kind
    variant: str
    dtype: str


def _kernel(value: Any, place: str) -> _Kernel:
    name, kind, variant, dtype = _entries(value, place, KERNEL_MEMBERS)
    return _Kernel(
        check_text(name, place, bounds.MAX_NAME_CHARACTERS, NAME_PATTERN),
        check_choice(kind, place, get_args(Kind)),
        check_text(variant, place, 64, VARIANT_PATTERN),
        check_text(dtype, place, 64, NAME_PATTERN),
    )


def _operation(value: Any, place: str, kernels: Sequence[_Kernel]) -> ContextOperation:
    """Without kernels, as schema versions 1 and 2 have it: the kernel's members stand in the row."""
    if kernels:
        at, *sizes = _entries(value, place, 1 + SIZES, 1 + SIZES + 1)
        kernel = kernels[check_place(at, place, len(kernels), "kernel")]
    else:
        row = _entries(value, place, KERNEL_MEMBERS + SIZES)
        kernel, sizes = _kernel(row[:KERNEL_MEMBERS], place), list(row[KERNEL_MEMBERS:])
    return ContextOperation(*kernel, *(check_number(size, place, 0.0, bounds.MAX_POINT_QUANTITY) for size in sizes))


def _ran(value: Any, place: str, operations: Sequence[ContextOperation]) -> tuple[ContextOperation, int]:
    at, count = _entries(value, place, 2) if isinstance(value, list | tuple) else (value, 1)
    operation = operations[check_place(at, place, len(operations), "operation")]
    return operation, check_count(count, place, 1, bounds.MAX_MODULES * 100)


def _cost(value: Any, place: str, operations: Sequence[ContextOperation]) -> OperationCost:
    *ran, seconds, spread = _entries(value, place, len(OperationCost._fields))
    return OperationCost(
        *_ran(ran, place, operations),
        check_number(seconds, place, bounds.MIN_POINT_SECONDS, bounds.MAX_POINT_SECONDS),
        check_number(spread, place, 0.0, bounds.MAX_POINT_SECONDS),
    )


def _entries(value: Any, place: str, *expected: int) -> Sequence[Any]:
    row = check_list(value, place, max(expected))
    if len(row) not in expected:
        raise Refused(f"{place} has {len(row)} entries where {' or '.join(map(str, expected))} are expected")
    return row
