import pytest

from app.advisor.explanations.words import say_duration


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.004, "4.0 ms"),
        (90.0, "90 s"),
        (500.0, "8.3 min"),
        (5400.0, "90 min"),
        (8640.0, "2.4 h"),
        (12 * 86_400.0, "12 days"),
    ],
)
def test_a_duration_is_said_in_the_unit_that_people_use(seconds: float, words: str) -> None:
    assert say_duration(seconds) == words
