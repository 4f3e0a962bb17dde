import math

import pytest

from app.advisor.request import InvalidRequest, Request
from tests.app.advisor.build import a_workload


@pytest.mark.parametrize(
    "changes",
    [
        {"precision": "fp8"},
        {"effort": "heroic"},
        {"time_limit_seconds": 0.0},
        {"time_limit_seconds": -1.0},
        {"time_limit_seconds": math.nan},
        {"time_limit_seconds": math.inf},
        {"time_limit_seconds": 3.0},  # of instant, which measures nothing
    ],
)
def test_a_question_that_makes_no_sense_is_refused_with_a_sentence(changes: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest, match=r"[a-z].*\."):
        Request(a_workload(), **changes)  # type: ignore[arg-type]


def test_a_batch_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="at least one sample"):
        Request(a_workload(batch_size=0))


def test_a_wrong_choice_offers_the_right_ones() -> None:
    with pytest.raises(InvalidRequest) as caught:
        Request(a_workload(), effort="heroic")
    assert caught.value.suggestions == ("instant", "quick", "thorough")


def test_the_time_limit_shortens_measuring_and_never_lengthens_it() -> None:
    assert Request(a_workload(), effort="instant").measuring_seconds == 0
    assert Request(a_workload(), effort="quick").measuring_seconds == 10
    assert Request(a_workload(), effort="quick", time_limit_seconds=3).measuring_seconds == 3
    assert Request(a_workload(), effort="quick", time_limit_seconds=300).measuring_seconds == 10
