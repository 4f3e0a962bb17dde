"""The benchmark of like models judges a model by what others taught, never by itself."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from app.advisor.summary import trace_of_summary
from app.advisor.time_model.experience import Learned
from benchmarks.likeness import Case, cpu_plan, describe, evaluate, figures, read_cases
from benchmarks.workloads import twins
from probes.workload.description import Plan
from tests.app.advisor.build import ONE, TWO, TWO_BF16, a_summary, a_workload

NAMES = ("a", "b", "c", "d")
TRACES = {
    name: trace_of_summary(replace(a_workload(), model=a_summary(parameters=10**6 + number)))
    for number, name in enumerate(NAMES)
}


def cases(off: dict[str, float]) -> list[Case]:
    """Two families; what each took over what was predicted."""
    return [
        Case(name, "ab" if name in "ab" else "cd", "training", 16, plan, 1.0, 0.3, off[name], off[name])
        for name in NAMES
        for plan in (ONE, TWO)
    ]


def test_models_that_are_all_off_alike_teach_each_other_also_across_families() -> None:
    table = evaluate(cases(dict.fromkeys(NAMES, 1.5)), TRACES)
    assert table["nothing learned"]["median_error"] == pytest.approx(0.5)
    assert table["every other model, by truth"]["median_error"] < 0.1
    assert table["other families alone, by quick"]["median_error"] < 0.15
    assert "| every other model, by quick |" in describe(table)


def test_a_model_that_alone_is_off_is_not_put_right_by_itself() -> None:
    found = evaluate(cases({"a": 3.0, "b": 1.0, "c": 1.0, "d": 1.0}), TRACES)["every other model, by truth"]
    assert found["p90_error"] == pytest.approx(2.0)


def test_only_predictions_are_judged() -> None:
    option = {"median": 1.0, "low": 0.8, "high": 1.25}
    row = {
        "name": "a",
        "family": "ab",
        "mode": "training",
        "batch_size": 16,
        "truth": {plan.label: {"median": 1.1} for plan in (ONE, TWO)},
        "instant": {
            "options": {ONE.label: {**option, "basis": "predicted"}, TWO.label: {**option, "basis": "measured"}}
        },
        "quick": None,
    }
    (case,) = read_cases([row, {"name": "b", "error": "no"}])
    assert (case.plan, case.truth, case.quick) == (ONE, 1.1, None)


@pytest.mark.parametrize("plan", [ONE, TWO_BF16, Plan("cpu", "fp32", 6), Plan("cpu", "bf16", 12)])
def test_a_plan_is_known_by_its_label_however_many_threads_it_has(plan: Plan) -> None:
    assert cpu_plan(plan.label) == plan


@pytest.mark.parametrize("plan", [Plan("cuda:0", "fp32"), replace(TWO, compiled=True), Plan("cpu", "fp16", 2)])
def test_a_plan_that_is_not_looked_at_is_taken_for_no_other(plan: Plan) -> None:
    assert cpu_plan(plan.label) is None


def test_regret_is_of_each_draw_by_itself() -> None:
    """In the last of five the slower plan is told to be the quicker one; in the others it is not."""
    two = [Case("a", "ab", "training", 16, plan, 1.0, 0.3, truth, None) for plan, truth in ((ONE, 1.0), (TWO, 2.0))]
    draws = [[Learned(), Learned(math.log(told))] for told in (1.2, 1.2, 1.2, 1.2, 0.9)]
    assert figures(two, *draws)["regret"] == pytest.approx(0.2)
    assert figures(two, *draws)["estimates"] == 10


def test_the_same_network_in_the_other_mode_does_not_teach() -> None:
    names = ("lstm", "lstm inference", "iris")
    assert [sorted(twins(name)) for name in names] == [["lstm", "lstm inference"]] * 2 + [["iris"]]
    assert twins("llama") == {"llama", "llama inference"}  # of other lengths
    traces = dict(zip(names, TRACES.values(), strict=False))
    off = {"lstm": 3.0, "lstm inference": 1.0, "iris": 1.0}
    rows = [Case(name, name, "training", 16, ONE, 1.0, 0.3, off[name], off[name]) for name in names]
    two = [row for row in rows if row.name != "iris"]
    assert evaluate(two, traces)["every other model, by truth"] == evaluate(two, traces)["nothing learned"]
    assert evaluate(rows, traces)["every other model, by truth"] != evaluate(rows, traces)["nothing learned"]
