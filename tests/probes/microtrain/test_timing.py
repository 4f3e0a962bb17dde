"""When samples have settled."""

import math
import random

import pytest

from probes.measurement import Timing
from probes.microtrain.timing import central_mean, relative_error, relative_spread, significant, steady_tail


def noisy(level: float, count: int, seed: int = 1, spread: float = 0.01) -> list[float]:
    source = random.Random(seed)
    return [level * (1 + source.uniform(-spread, spread)) for _ in range(count)]


@pytest.mark.parametrize("seed", range(20))
def test_samples_around_one_level_have_settled(seed: int) -> None:
    samples = noisy(0.02, 15, seed)
    tail, steady = steady_tail(samples)
    assert steady
    assert len(tail) >= 10


def test_a_slow_beginning_is_dropped() -> None:
    samples = [0.09, 0.05, 0.03, *noisy(0.02, 12)]
    tail, steady = steady_tail(samples)
    assert steady
    assert max(tail) < 0.021


def test_a_long_drift_has_not_settled() -> None:
    samples = [0.02 + 0.001 * index for index in range(15)]
    assert not steady_tail(samples)[1]


def test_a_jump_in_the_middle_has_not_settled() -> None:
    assert not steady_tail([*noisy(0.02, 10), *noisy(0.03, 10, seed=2)])[1]


def test_a_drift_too_small_to_matter_has_settled() -> None:
    samples = [0.02 * (1 + 0.001 * index) for index in range(15)]
    assert steady_tail(samples)[1]


def test_one_hiccup_does_not_unsettle() -> None:
    samples = noisy(0.02, 15)
    samples[7] = 0.4
    assert steady_tail(samples)[1]


@pytest.mark.parametrize("count", [0, 1, 2])
def test_fewer_than_three_samples_have_never_settled(count: int) -> None:
    tail, steady = steady_tail([0.02] * count)
    assert tail == [0.02] * count
    assert not steady


def test_three_samples_that_halve_have_not_settled() -> None:
    assert not steady_tail([0.04, 0.03, 0.02])[1]


def test_no_more_than_a_third_is_dropped() -> None:
    tail, _ = steady_tail([0.02 + 0.001 * index for index in range(15)])
    assert len(tail) == 10


def test_precision_grows_with_the_samples() -> None:
    assert relative_error(noisy(0.02, 100)) < relative_error(noisy(0.02, 10)) < math.inf
    assert relative_error([0.02, 0.02]) == math.inf


def test_spread_is_a_share_of_the_median() -> None:
    assert relative_spread(Timing(2.0, 1.9, 2.3)) == pytest.approx(0.2)
    assert relative_spread(Timing(0.0, 0.0, 0.0)) == 0.0


def test_a_mean_of_two_kinds_of_steps_is_between_them_and_hears_no_hiccup() -> None:
    assert central_mean([30.0, 40.0, 30.0, 40.0]) == 35.0
    assert central_mean([10.0, 10.0, 12.0, 12.0, 900.0]) == pytest.approx(34 / 3)
    assert central_mean([7.0]) == 7.0
    with pytest.raises(ValueError, match="at least one"):
        central_mean([])


def test_figures_are_rounded_to_what_a_clock_can_tell() -> None:
    assert significant(0.000123456789) == 0.00012346
