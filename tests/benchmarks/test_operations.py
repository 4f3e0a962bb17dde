"""The benchmark of single operations shows whose price is wrong, in steps that really ran."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.advisor.operation_prices.context_prices import HEAVY_KINDS, ContextPrices, context_prices
from benchmarks import operations
from benchmarks.clocked_step import Clocked, clock_step
from benchmarks.workloads import WORKLOADS
from probes.context import Context
from probes.microtrain.calibrate import CalibrateJob, calibrate
from probes.microtrain.processes import fresh_processes
from tests.app.advisor.build import ONE

ROW = next(row for row in WORKLOADS if row.name == "digits")


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    yield
    fresh_processes.end()


@pytest.fixture(scope="module")
def clocked() -> Clocked:
    fresh_processes.prepare()
    found: Clocked = fresh_processes.run_fresh(clock_step, (ROW.name, ROW.workload(), ONE, 0.1), lambda: None)
    return found


def prices_of(context: Context) -> ContextPrices:
    prices = context_prices([context], "training", 1e10)
    assert prices is not None
    return prices


def slower(context: Context, name: str, times: float) -> Context:
    costs = [
        cost._replace(seconds=cost.seconds * times) if cost.operation.name == name else cost for cost in context.costs
    ]
    return Context(context.network, context.batch_size, context.mode, context.plan, tuple(costs), context.issued)


def test_what_hardly_matters_to_the_step_is_not_kept(clocked: Clocked) -> None:
    context = clocked.context
    wrong = operations.wrong_operations(context, prices_of(context))
    off = [abs(row["told"] - row["seconds"]) * row["times"] for row in wrong]
    assert len(wrong) < len(context.costs)
    assert off == sorted(off, reverse=True)
    assert all(seconds >= operations.TELLING_SHARE * context.seconds for seconds in off)


def test_what_took_longer_than_it_was_told_stands_first(clocked: Clocked) -> None:
    prices = prices_of(clocked.context)
    wrong = operations.wrong_operations(slower(clocked.context, "aten.addmm", 10.0), prices)
    assert wrong[0]["name"] == "aten.addmm"
    assert wrong[0]["seconds"] > 2 * wrong[0]["told"]
    assert wrong[0]["kind"] in HEAVY_KINDS


def a_step(told: float, **of_operation: Any) -> dict[str, Any]:
    operation = {"name": "aten.mm", "variant": "", "dtype": "float32", "times": 2, "seconds": 1e-3, **of_operation}
    parts = {"operations": 0.9 * told, "between": 0.1 * told, "page faults": 0.0, "told": told}
    where = {"mode": "training", "plan": "cpu fp32, 1 thread"}
    return {**where, **parts, "step": 1e-2, "clocked": 1e-2, "wrong": [{**operation, "told": told / 2}]}


def test_errors_are_shares_of_steps_in_either_direction_and_all_in_all() -> None:
    table = operations.make_table([a_step(4e-3), a_step(2e-3, seconds=2e-3), {**a_step(8e-3), "wrong": []}])
    (row,) = table["by operation"]
    assert row["off by"] == pytest.approx((0.2 + 0.2) / 3)
    assert row["all in all"] == pytest.approx(0.0)
    assert row["steps"] == 2
    assert table["by plan"]["cpu fp32, 1 thread, training"]["told over step"] == pytest.approx(0.4)
    said = operations.describe_table(table)
    assert "| aten.mm float32 | cpu fp32, 1 thread, training | 2 | 13.33% | +0.00% |" in said


def test_it_prices_by_kept_calibrations_and_says_what_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = calibrate(CalibrateJob("quick", (ONE,), "mine", "a machine", "f", seconds=6.0), lambda *_: None)
    kept, output = tmp_path / "profile.json", tmp_path / "operations.json"
    kept.write_text(json.dumps(profile.to_json()), encoding="utf-8")
    impossible = ROW._replace(
        name="impossible", model={"layers": [{"type": "linear", "out": 10**9}], "input_shape": [10**9]}
    )
    monkeypatch.setattr(operations, "WORKLOADS", (ROW, impossible))
    words = ["--only", "digits", "impossible", "--seconds", "0.05", "--profile", str(kept), "--output", str(output)]
    assert operations.main(words) == 0
    document = json.loads(output.read_text(encoding="utf-8"))
    assert {(step["name"], step["batch_size"], step["plan"]) for step in document["steps"]} == {
        ("digits", size, ONE.label) for size in ROW.batch_sizes
    }
    assert "impossible" in document["failed"]
    assert "told over measured" in capsys.readouterr().out


def test_a_model_that_is_not_there_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        operations.main(["--only", "mnist"])
    assert "mnist: no such model; there are iris" in capsys.readouterr().err
