"""How much is alive at a batch size, and how large a batch has room: the two agree."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.advisor.memory_model.peaks import Peaks
from app.advisor.memory_model.stretches import Stretch, Stretches
from probes.trace import Affine, Knot

growing = st.lists(st.tuples(st.integers(1, 500), st.integers(0, 10**9)), min_size=2, max_size=8).map(
    lambda steps: tuple(Knot(sum(step for step, _ in steps[: n + 1]), bytes) for n, (_, bytes) in enumerate(steps))
)


@given(growing)
def test_a_curve_goes_through_its_points(knots: tuple[Knot, ...]) -> None:
    for knot in knots:
        assert abs(Peaks(knots=knots).at(knot.batch_size) - knot.bytes) <= 1e-3


@given(growing, st.integers(0, 2 * 10**9))
@example((Knot(82, 373), Knot(83, 371), Knot(104, 510)), 371)
def test_the_largest_batch_within_has_room_and_the_next_has_none(knots: tuple[Knot, ...], room: int) -> None:
    peaks = Peaks(knots=knots)
    largest = peaks.within(room).largest
    if largest is not None and largest > 0:
        assert peaks.at(largest) <= room + 1
        assert peaks.at(largest + 1) >= room - 1


@given(growing, st.integers(0, 10**9))
def test_every_batch_within_has_room_and_no_other_has(knots: tuple[Knot, ...], room: int) -> None:
    peaks = Peaks(knots=knots)
    within = peaks.within(room)
    for size in {knot.batch_size + away for knot in knots for away in (-1, 0, 1)} | {1, *within.ends}:
        if size >= 1 and abs(peaks.at(size) - room) > 1:
            assert (size in within) is (peaks.at(size) <= room)


@given(growing, st.lists(st.builds(Affine, st.integers(0, 10**9), st.integers(0, 10**6)), min_size=1, max_size=3))
@example((Knot(1, 0), Knot(5, 100)), [Affine(60.0, 0.0)])
def test_what_is_at_least_so_much_is_the_higher_of_both_at_every_batch(
    knots: tuple[Knot, ...], lines: list[Affine]
) -> None:
    plain, floor = Peaks(knots=knots), Peaks(tuple(lines))
    for peaks in (plain, Peaks(floor.lines[:1])):
        found = peaks.at_least(floor.lines)
        for size in range(knots[0].batch_size, knots[-1].batch_size + 30):
            assert found.at(size) == pytest.approx(max(peaks.at(size), floor.at(size)), rel=1e-9, abs=1e-2)
    assert plain.at_least(()) == plain


def test_where_kernels_take_less_at_a_larger_batch_the_larger_one_counts() -> None:
    peaks = Peaks(knots=(Knot(1, 900), Knot(2, 400), Knot(10, 1200)))
    assert peaks.within(500).largest == 3
    assert peaks.within(500) == Stretches((Stretch(2, 3),))
    assert Peaks(knots=(*peaks.knots, Knot(20, 600), Knot(30, 1600))).within(950).each == ((1, 7), (15, 23))
    assert peaks.within(300).largest == 0
    assert peaks.at(1) == 900


def test_nothing_is_less_than_nothing() -> None:
    assert Peaks((Affine(-100.0, 1e-3),)).within(-5).largest == 0
    assert Peaks(knots=(Knot(1, 0), Knot(2, 0))).within(-5).largest == 0


def test_of_lines_the_highest_counts() -> None:
    peaks = Peaks((Affine(100.0, 1.0), Affine(0.0, 30.0)))
    assert [peaks.at(1), peaks.at(10)] == [101, 300]
    assert peaks.within(300).largest == 10
    assert Peaks((Affine(100.0, 0.0),)).within(200).largest is None


def test_beyond_the_knots_a_line_that_grows_faster_becomes_the_peak() -> None:
    peaks = Peaks((Affine(0.0, 10.0), Affine(500.0, 1.0)), (Knot(1, 1000), Knot(10, 1090)))
    level = Peaks((Affine(-2000.0, 40.0),), (Knot(1, 1000), Knot(10, 1000)))
    assert peaks.at(20) == 1190
    assert [level.at(size) for size in (10, 75, 100)] == [1000, 1000, 2000]
    assert level.within(999).largest == 0
    assert level.within(1000).largest == 75
    assert level.within(2000).largest == 100


lines = st.lists(st.builds(Affine, st.floats(-1e9, 1e9), st.floats(1e-2, 1e6)), max_size=4).map(tuple)


@given(lines, growing, growing, st.integers(1, 10**6))
def test_a_sum_is_the_sum_at_every_batch_beyond_both(
    lines: tuple[Affine, ...], knots: tuple[Knot, ...], other: tuple[Knot, ...], more: int
) -> None:
    one, two = Peaks(lines, knots), Peaks(knots=(*other, Knot(2 * other[-1].batch_size, other[-1].bytes)))
    size = max(knots[-1].batch_size, two.knots[-1].batch_size) + more
    assert one.and_with(two).at(size) == pytest.approx(one.at(size) + two.at(size), rel=1e-6, abs=10)


@given(lines, growing, st.integers(0, 2 * 10**9))
def test_the_largest_batch_beyond_the_knots_has_room_and_the_next_has_none(
    lines: tuple[Affine, ...], knots: tuple[Knot, ...], room: int
) -> None:
    peaks = Peaks(lines, knots)
    largest = peaks.within(room).largest
    if largest is not None and largest > knots[-1].batch_size:
        assert peaks.at(largest) <= room + 1
        assert peaks.at(largest + 1) >= room - 1
