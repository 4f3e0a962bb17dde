import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.advisor.recommendation import Interval
from app.advisor.time_model.intervals import apart, deviation, interval_around, interval_of_timing, narrow, shift, widen
from probes.measurement import Timing

seconds = st.floats(1e-6, 1e3)


@given(st.lists(seconds, min_size=1, max_size=300))
def test_an_interval_holds_its_median_and_is_never_a_point(samples: list[float]) -> None:
    interval = interval_of_timing(Timing.from_samples(samples))
    assert 0 < interval.low < interval.median < interval.high < math.inf


def test_the_interval_holds_the_true_median_four_times_in_five() -> None:
    source = random.Random(4)
    for count in (5, 12, 40, 250):
        hits = 0
        for _ in range(400):
            samples = [source.lognormvariate(0, 0.3) for _ in range(count)]
            interval = interval_of_timing(Timing.from_samples(samples))
            hits += interval.low <= 1.0 <= interval.high
        assert hits >= 0.77 * 400


def test_more_samples_narrow_the_interval() -> None:
    source = random.Random(5)
    samples = [source.lognormvariate(0, 0.2) for _ in range(400)]
    few, many = (deviation(interval_of_timing(Timing.from_samples(samples[:n]))) for n in (8, 400))
    assert many < few


def test_one_sample_says_nothing_about_its_spread() -> None:
    interval = interval_of_timing(Timing.from_samples([1.0]))
    assert interval.high / interval.low > 1.15


def test_a_machine_that_slows_down_meanwhile_widens_the_interval() -> None:
    steady = interval_of_timing(Timing.from_samples([1.0, 1.01] * 10))
    drifting = interval_of_timing(Timing.from_samples([1.0, 1.01] * 5 + [1.5, 1.51] * 5))
    assert deviation(drifting) > 3 * deviation(steady)


@given(seconds, st.floats(0, 1), st.floats(0, 1))
def test_widening_never_narrows(middle: float, spread: float, more: float) -> None:
    before = interval_around(middle, spread)
    after = widen(before, more)
    assert after.low <= before.low * (1 + 1e-9)
    assert after.high >= before.high * (1 - 1e-9)
    assert after.median == before.median


@given(seconds, st.floats(-1e3, 1e3))
def test_a_part_taken_away_leaves_a_positive_time(middle: float, moved: float) -> None:
    assert shift(interval_around(middle, 0.1), moved).low > 0


def test_touching_intervals_are_not_apart() -> None:
    assert apart(Interval(1, 0.9, 1.1), Interval(2, 1.2, 3))
    assert not apart(Interval(1, 0.9, 1.2), Interval(2, 1.2, 3))
    assert not apart(Interval(2, 1.2, 3), Interval(1, 0.9, 1.1))


def test_narrowing_takes_back_what_widening_did() -> None:
    around = Interval(1.0, 0.9, 1.3)
    back = narrow(widen(around, 0.15), 0.15)
    assert (back.low, back.high) == (pytest.approx(0.9), pytest.approx(1.3))
    assert narrow(Interval(1.0, 0.95, 1.05), 0.15) == Interval(1.0, 1.0, 1.0)
