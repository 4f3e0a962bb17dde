"""What is remembered between questions is bounded, and never changes an answer."""

from __future__ import annotations

from dataclasses import replace

from app.advisor import Request, predicted, recommend
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
    assert len(predicted._remembered) <= predicted.REMEMBERED_MODELS


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
