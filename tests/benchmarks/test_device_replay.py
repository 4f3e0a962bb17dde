"""What the code that is here says an NVIDIA H200 runs, held against what steps there dispatched: operation by
operation. Other workloads than test_device_table's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import benchmarks
from app.advisor.operation_prices.device_operations import on_device, same_kernel
from app.advisor.time_model.features import _sized
from benchmarks.device_steps import read
from benchmarks.workloads import WORKLOADS
from probes.context import ContextOperation
from probes.microtrain.tracing import trace_workload
from probes.trace import Trace, _operation_from_row

H200 = Path(benchmarks.__file__).parent / "results" / "2026-11-26-nvidia-h200-xeon-16-cores"
# Each traced in a second to five.
LAYERS = {"lstm deep": 2, "lstm inference": 1}
NAMES = ("digits", "tabular inference", "image small", "image inference", *LAYERS, "encoder inference", "gpt2")
PRECISIONS = ("fp32", "bf16")
HEAVY = ("attention", "convolution", "matmul", "recurrent")
BATCH = 8
# Of what a step does not compute, some depends on where it runs: the batch comes to the card by two copies, a loss's
# seed by one operation; attention's kernels want other layouts than a CPU's, and give views of them.
MOVING = {"aten.empty", "aten.zeros", "aten.set_", "aten.lift_fresh"}
BY_THE_BATCH = 5
# Under autocast cuDNN wants the weights of recurrent layers in a row, each cast there by itself: two views, a copy, and
# what holds it, of each of the four of a layer. That is not traced.
BY_A_WEIGHT = 5
WEIGHTS = 4
# Where the card's steps were watched a sum was a third tensor (probes.microtrain.traces.unwatched).
WATCHED = {"aten.add_": "aten.add"}

Rows = list[tuple[ContextOperation, int]]


@cache
def traced(name: str) -> Trace:
    row = next(row for row in WORKLOADS if row.name == name)
    return trace_workload(row.workload(), devices=True)


@pytest.fixture(scope="module")
def truth() -> dict[str, dict[str, list[Any]]]:
    rows = [row for row in read(H200, "truth") if row["kind"] == "device" and row["operations"]]
    return {row["name"]: row["operations"] for row in rows}


def told(name: str, precision: str) -> Rows:
    trace = traced(name)
    operations = on_device(trace.on(cpu=False).operations_under(precision), trace.parameter_tensors)
    return [(same_kernel(_sized(each, BATCH)), each.count) for each in operations]


def ran(rows: Iterable[Any]) -> Rows:
    return [(same_kernel(_sized(each, BATCH)), each.count) for each in map(_operation_from_row, rows)]


def by_name(rows: Rows, *, computing: bool) -> Counter[str]:
    """computing: those alone that are no view, copy, or empty place."""
    found: Counter[str] = Counter()
    for each, times in rows:
        if not computing or (each.kind not in ("view", "copy") and each.name not in MOVING):
            found[WATCHED.get(each.name, each.name)] += times
    return found


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", NAMES)
def test_every_operation_that_computes_is_told(name: str, precision: str, truth: Any) -> None:
    one, other = told(name, precision), ran(truth[name][precision])
    assert by_name(one, computing=True) == by_name(other, computing=True)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", NAMES)
def test_and_so_is_how_many_there_are(name: str, precision: str, truth: Any) -> None:
    counts = [by_name(rows, computing=False).total() for rows in (told(name, precision), ran(truth[name][precision]))]
    casts = WEIGHTS * BY_A_WEIGHT * LAYERS.get(name, 0) if precision == "bf16" else 0
    assert abs(counts[0] - counts[1]) <= 0.05 * counts[1] + BY_THE_BATCH + casts


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", NAMES)
def test_products_are_as_many(name: str, precision: str, truth: Any) -> None:
    """The card's are straight lines through its smallest and largest batch, of which one may be padded; what cuDNN is
    handed in a row under autocast has the biases among it."""

    def flops(rows: Rows) -> dict[str, float]:
        found: Counter[str] = Counter()
        for each, times in rows:
            if each.kind in HEAVY:
                found[each.name] += times * each.flops  # type: ignore[assignment]
        return dict(found)

    assert flops(told(name, precision)) == pytest.approx(flops(ran(truth[name][precision])), rel=0.04)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in LAYERS])
def test_under_autocast_each_is_in_the_type_that_it_was_in(name: str, truth: Any) -> None:
    """But recurrent layers, which a card runs in fp16 whatever the type asked for."""

    def types(rows: Rows) -> Counter[tuple[str, str]]:
        found: Counter[tuple[str, str]] = Counter()
        for each, times in rows:
            if each.kind not in ("view", "copy") and each.name not in MOVING:
                found[WATCHED.get(each.name, each.name), each.dtype] += times
        return found

    assert types(told(name, "bf16")) == types(ran(truth[name]["bf16"]))
