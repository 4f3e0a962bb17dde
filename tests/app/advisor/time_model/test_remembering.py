"""What is remembered between questions is bounded, and never changes an answer."""

from __future__ import annotations

import gc
from dataclasses import replace

import pytest

from app.advisor import Request, recommend
from app.advisor.operation_prices import remembered
from app.advisor.operation_prices.prices import Prices
from app.advisor.summary import trace_of_summary
from app.advisor.time_model import predicted
from probes.context import Clock, Context, ContextOperation, OperationCost
from probes.profile import Profile
from probes.workload.description import Plan
from tests.app.advisor.build import ONE, a_summary, a_survey, a_workload
from tests.app.advisor.machine import GPU, a_profile


def test_a_thousand_models_leave_no_more_behind_than_a_few() -> None:
    profile = a_profile()
    for number in range(200):
        workload = replace(a_workload(), model=a_summary(parameters=1000 + number))
        recommend(a_survey(), profile, None, [], Request(workload))
    assert len(predicted._curves) <= predicted.REMEMBERED_TRACES
    for number in range(100):
        recommend(a_survey(), replace(profile, name=str(number)), None, [], Request(a_workload()))
    assert len(predicted._remembered) <= predicted.REMEMBERED_PROFILES


def clocked(plan: Plan, clock: Clock) -> Context:
    operation = ContextOperation("aten.add", "elementwise", "", "float32", 0.0, 800.0, 400.0)
    sizes = [operation._replace(read_bytes=10.0**power) for power in range(3, 8)]
    return Context("a", 8, "training", plan, tuple(OperationCost(each, 1, 1e-5, 0.1) for each in sizes), clock=clock)


def with_contexts() -> Profile:
    """Of a CPU and a device whose operations were clocked inside steps."""
    profile = a_profile((ONE, GPU))
    return replace(profile, contexts=(clocked(ONE, "host"), clocked(GPU, "host"), clocked(GPU, "device")))


@pytest.mark.parametrize("plan", [ONE, GPU], ids=lambda plan: plan.device)
def test_a_thousand_models_leave_no_more_prices_behind_than_a_few(monkeypatch: pytest.MonkeyPatch, plan: Plan) -> None:
    most = 20
    monkeypatch.setattr(remembered, "MOST_REMEMBERED", most)
    profile, few = with_contexts(), []
    prices = predicted.model_of_plan(profile, plan)
    assert prices is not None
    of_operations = prices.prices.context if plan is ONE else prices.prices.kernels
    assert of_operations is not None
    for number in range(200):
        workload = replace(a_workload(), model=a_summary(activation_bytes_per_sample=1e5 * 1.1**number))
        step = predicted.predict(profile, plan, trace_of_summary(workload), None)
        assert step is not None
        step.at(16, "resident")
        few.append(len(of_operations._remembered))
    assert max(few) > most / 2
    assert max(few) <= most


def test_profiles_that_others_replaced_are_let_go_with_all_that_was_fitted_to_them() -> None:
    def fitted_after(count: int) -> int:
        for number in range(count):
            recommend(a_survey(), replace(a_profile(), name=str(number)), None, [], Request(a_workload()))
        gc.collect()
        return sum(type(each) is Prices for each in gc.get_objects())  # isinstance asks objects, and some of torch warn

    few = fitted_after(predicted.REMEMBERED_PROFILES)
    assert few > 0
    assert fitted_after(10 * predicted.REMEMBERED_PROFILES) <= few


def test_an_answer_is_the_same_whatever_was_asked_before() -> None:
    """Cold, warm, and after others: the same document."""
    profile, question = a_profile(), Request(a_workload(48))
    cold = recommend(a_survey(), profile, None, [], question).to_json()
    for batch in (1, 7, 1000):
        recommend(a_survey(), profile, None, [], Request(a_workload(batch)))
    assert recommend(a_survey(), profile, None, [], question).to_json() == cold
    predicted._curves.clear()
    predicted._remembered.clear()
    assert recommend(a_survey(), profile, None, [], question).to_json() == cold
