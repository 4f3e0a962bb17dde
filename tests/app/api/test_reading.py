"""What is wrong with a body is told at a cost that does not grow with it."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest

from app.api.bodies import RecommendBody
from app.api.problems import Problem
from app.api.reading import MAX_COMPLAINTS, MAX_PROBLEMS_TOLD, parse_body

IRIS: dict[str, Any] = {"model": "iris-mlp", "batch_size": 8}


def refused(body: dict[str, Any]) -> Problem:
    with pytest.raises(Problem) as caught:
        parse_body(body, RecommendBody)
    assert caught.value.status == 422
    return caught.value


def test_a_few_things_that_are_wrong_are_each_told() -> None:
    problem = refused({**IRIS, "batch_size": "many", "efort": "quick"})
    assert [row["pointer"] for row in problem.more["errors"]] == ["/batch_size", ""]
    assert "Did you mean effort?" in problem.detail


@pytest.mark.parametrize(
    ("written", "rest", "meant"),
    [
        ("modle", {}, "model"),  # mode is as near, and nothing is missing there
        ("modle", {"model": "iris-mlp"}, "mode"),
        ("mdoe", {}, "mode"),
        ("modl", {"mode": "training"}, "model"),
        ("batchsize", {"model": "iris-mlp"}, "batch_size"),
    ],
)
def test_of_fields_that_are_as_near_the_one_that_is_missing_is_meant(
    written: str, rest: dict[str, Any], meant: str
) -> None:
    assert f"Did you mean {meant}?" in refused({"batch_size": 8, written: "iris-mlp", **rest}).detail


def test_of_a_great_many_unknown_fields_none_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    def described(*_: object) -> NoReturn:
        raise AssertionError("a complaint was described that nobody is told")

    monkeypatch.setattr("app.api.reading._describe", described)
    problem = refused({**IRIS, **{f"zz{number}": 0 for number in range(MAX_COMPLAINTS + 1)}})
    assert "batch_size" in problem.detail  # one of the fields that there are
    assert "zz" not in problem.detail
    assert len(problem.more["errors"]) == 1


def test_no_more_is_told_than_somebody_reads() -> None:
    problem = refused({**IRIS, "devices": [1] * (MAX_COMPLAINTS - 1)})
    assert len(problem.more["errors"]) == MAX_PROBLEMS_TOLD
