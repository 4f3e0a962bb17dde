import pytest

from benchmarks.crossovers import Bracket, bracket_of, is_right


@pytest.mark.parametrize(
    ("faster", "bracket"),
    [
        ({1: False, 4: False, 16: True, 64: True}, Bracket("at", 4, 16)),
        ({1: True, 4: True}, Bracket("always")),
        ({1: False, 4: False}, Bracket("never")),
        ({1: True, 4: False, 16: True}, Bracket("at", 4, 16)),
        ({1: True, 4: False}, Bracket("never")),
    ],
)
def test_a_crossover_is_where_the_second_is_faster_from_then_on(faster: dict[int, bool], bracket: Bracket) -> None:
    assert bracket_of(faster) == bracket


def told(kind: str, batch_size: int | None = None) -> dict[str, object]:
    return {"kind": kind, "batch_size": batch_size}


def test_what_was_told_is_right_within_a_factor_of_two() -> None:
    truth = Bracket("at", 40, 50)
    assert is_right(told("at", 45), truth)
    assert is_right(told("at", 21), truth)
    assert is_right(told("at", 99), truth)
    assert not is_right(told("at", 19), truth)
    assert not is_right(told("at", 101), truth)
    assert not is_right(told("never"), truth)
    assert not is_right(told("always"), truth)


def test_undecided_is_neither_right_nor_wrong() -> None:
    assert is_right(told("undecided"), Bracket("never")) is None


def test_an_end_of_the_range_is_told_by_either_word() -> None:
    assert is_right(told("at", 2), Bracket("always"))
    assert is_right(told("always"), Bracket("at", 1, 2))
    assert is_right(told("never"), Bracket("never"))
    assert not is_right(told("at", 64), Bracket("always"))
