"""The advisor's benchmark asks what it says it asks."""

from __future__ import annotations

import json

from app.advisor.summary import trace_of_summary
from benchmarks.advisor import different_questions, measure_estimates
from tests.app.advisor.build import a_workload
from tests.app.advisor.machine import a_profile


def test_no_two_questions_are_about_the_same_model() -> None:
    questions = [json.dumps(question["model"]) for question in different_questions(1000)]
    assert len(set(questions)) == 1000
    assert sum("layers" in question for question in questions) == 20


def test_estimates_are_counted_for_every_plan_of_the_machine() -> None:
    known, first = measure_estimates(a_profile(), {"iris-mlp": trace_of_summary(a_workload())}, 100)
    assert known.value > 0
    assert known.details is not None
    assert known.details["estimates_per_second"] > 0
    assert first.unit == "ms"
