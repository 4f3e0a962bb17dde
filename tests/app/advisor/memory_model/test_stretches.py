"""Batches that have room, in stretches."""

import pytest

from app.advisor.memory_model.stretches import EVERY, Stretch, Stretches, joined

GAP = Stretches((Stretch(1, 512), Stretch(4096, 5414)))


def test_a_batch_in_a_gap_is_none_of_them() -> None:
    assert [size in GAP for size in (1, 512, 513, 4095, 4096, 5414, 5415)] == [
        True,
        True,
        False,
        False,
        True,
        True,
        False,
    ]
    assert (GAP.largest, EVERY.largest, Stretches(()).largest) == (5414, None, 0)


@pytest.mark.parametrize(
    ("asked", "below", "above"),
    [(1, 0, "4096 to 5414"), (1000, 512, "4096 to 5414"), (5000, 4999, None), (9999, 5414, None)],
)
def test_beside_a_batch_the_next_ones_are_told(asked: int, below: int, above: str | None) -> None:
    larger = GAP.next_above(asked)
    assert (GAP.largest_below(asked), None if larger is None else str(larger)) == (below, above)


def test_what_ran_closes_a_gap_and_a_limit_cuts_off() -> None:
    assert GAP.with_all_up_to(4095).each == ((1, 5414),)
    assert GAP.with_all_up_to(600).each == ((1, 600), (4096, 5414))
    assert GAP.at_most(4999).each == ((1, 512), (4096, 4999))
    assert GAP.at_most(999).each == ((1, 512),)
    assert GAP.at_least(2).each == ((2, 512), (4096, 5414))
    assert GAP.at_least(513).each == ((4096, 5414),)
    assert EVERY.with_all_up_to(8) == EVERY
    assert EVERY.at_most(8).each == ((1, 8),)


def test_stretches_that_follow_on_each_other_are_one() -> None:
    assert joined([Stretch(1, 4), Stretch(5, 9), Stretch(7, 8), Stretch(11, None), Stretch(12, 13)]).each == (
        (1, 9),
        (11, None),
    )
    assert str(Stretch(11, None)) == "11 and more"
