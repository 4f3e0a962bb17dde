"""What is remembered between questions is bounded, and never changes an answer."""

from __future__ import annotations

import gc
from dataclasses import replace

from app.advisor import Request, recommend
from app.advisor.operation_prices.prices import Prices
from app.advisor.time_model import predicted
from tests.app.advisor.build import a_summary, a_survey, a_workload
from tests.app.advisor.machine import a_profile


def test_a_thousand_models_leave_no_more_behind_than_a_few() -> None:
    profile = a_profile()
    for number in range(200):
        workload = replace(a_workload(), model=a_summary(parameters=1000 + number))
        recommend(a_survey(), profile, None, [], Request(workload))
    assert len(predicted._curves) <= predicted.REMEMBERED_TRACES
    for number in range(100):
        recommend(a_survey(), replace(profile, name=str(number)), None, [], Request(a_workload()))
    assert len(predicted._remembered) <= predicted.REMEMBERED_PROFILES


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
