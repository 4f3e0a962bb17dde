import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.advisor.time_model.fitting import (
    LEAST_FACTOR,
    LEAST_RATIO_SPREAD,
    LEAST_SPREAD,
    MOST_FACTOR,
    UNFITTED_SPREAD,
    Row,
    fit_factors,
    ratio_spread,
)

parts_of_steps = st.lists(st.floats(0.01, 1.0), min_size=3, max_size=3)
shares = st.lists(st.floats(0.0, 20.0), min_size=3, max_size=3)


@given(st.lists(parts_of_steps, min_size=6, max_size=12), st.tuples(*[st.floats(0.7, 3)] * 3))
def test_factors_that_made_the_data_explain_it(parts: list[list[float]], truth: tuple[float, ...]) -> None:
    totals = [sum(f * p for f, p in zip(truth, row, strict=True)) for row in parts]
    rows = [Row(str(i), [p / total for p in row]) for i, (row, total) in enumerate(zip(parts, totals, strict=True))]
    fit = fit_factors(rows, (1.0, 1.0, 1.0))
    for row in rows:
        assert sum(f * p for f, p in zip(fit.factors, row.shares, strict=True)) == pytest.approx(1.0, rel=0.3)


@given(st.lists(shares, min_size=1, max_size=10))
def test_work_is_never_free_and_spreads_never_vanish(parts: list[list[float]]) -> None:
    priors = (1.0, 1.4, 1.0)
    fit = fit_factors([Row(str(i), row) for i, row in enumerate(parts)], priors)
    for factor, prior in zip(fit.factors, priors, strict=True):
        assert LEAST_FACTOR * prior <= factor <= MOST_FACTOR * prior
    assert fit.spread >= LEAST_SPREAD


def test_one_network_measured_while_the_machine_was_busy_bends_nothing() -> None:
    rows = [Row(str(i), [0.5, 0.5 / 1.4]) for i in range(6)]
    disturbed = fit_factors([*rows, Row("disturbed", [0.005, 0.005])], (1.0, 1.4))
    assert disturbed.factors == pytest.approx(fit_factors(rows, (1.0, 1.4)).factors, rel=0.1)


def test_a_class_that_no_network_has_keeps_its_prior() -> None:
    fit = fit_factors([Row(str(i), [0.5, 0.0]) for i in range(4)], (1.0, 1.4))
    assert fit.factors[0] == pytest.approx(2.0, rel=0.1)
    assert fit.factors[1] == pytest.approx(1.4)


def test_two_networks_cannot_tell_how_good_they_are() -> None:
    assert fit_factors([Row("a", [1.0]), Row("b", [1.0])], (1.0,)).spread == UNFITTED_SPREAD


def test_networks_that_disagree_widen_the_spread() -> None:
    agreeing = fit_factors([Row(str(i), [0.8]) for i in range(6)], (1.0,))
    disagreeing = fit_factors([Row(str(i), [0.8 if i % 2 else 0.4]) for i in range(6)], (1.0,))
    assert agreeing.spread == LEAST_SPREAD
    assert disagreeing.spread > 2 * LEAST_SPREAD


def test_an_error_that_two_plans_share_does_not_blur_which_is_faster() -> None:
    errors = {("a", 1): 0.4, ("b", 1): -0.3, ("c", 1): 0.2, ("d", 1): -0.4}
    alike = {step: error + 0.01 for step, error in errors.items()}
    opposite = {step: -error for step, error in errors.items()}
    assert ratio_spread(errors, alike) == LEAST_RATIO_SPREAD
    assert (ratio_spread(errors, opposite) or 0) > 0.8


def test_one_network_whose_price_is_absurd_does_not_hide_which_plan_is_faster() -> None:
    errors = {(str(i), 1): 0.1 * (-1) ** i for i in range(16)}
    none = dict.fromkeys(errors, 0.0)
    usual = ratio_spread(errors, none) or 0
    assert usual < (ratio_spread({**errors, ("absurd", 1): -6.7}, {**none, ("absurd", 1): 0.0}) or 0) < 2 * usual


def test_plans_that_share_no_networks_are_not_compared_closely() -> None:
    assert ratio_spread({("a", 1): 0.1, ("b", 1): 0.1, ("c", 1): 0.1}, {}) is None


def test_plans_are_compared_at_the_batch_sizes_that_both_ran() -> None:
    """One was too slow for the larger ones, at which the other is told better than at the smallest."""
    slow = {(name, 4): 0.35 for name in "abc"}
    quick = slow | {(name, size): 0.05 for name in "abc" for size in (64, 512)}
    assert ratio_spread(slow, quick) == LEAST_RATIO_SPREAD
    assert ratio_spread(slow, {step: error for step, error in quick.items() if step[1] > 4}) is None
