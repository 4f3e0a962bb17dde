import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.advisor.time_model.fitting import (
    LEAST_FACTOR,
    LEAST_RATIO_SPREAD,
    LEAST_SPREAD,
    MOST_FACTOR,
    UNFITTED_SPREAD,
    fit_factors,
    ratio_spread,
)

parts_of_steps = st.lists(st.floats(0.01, 1.0), min_size=3, max_size=3)
shares = st.lists(st.floats(0.0, 20.0), min_size=3, max_size=3)


@given(st.lists(parts_of_steps, min_size=6, max_size=12), st.tuples(*[st.floats(0.7, 3)] * 3))
def test_factors_that_made_the_data_explain_it(parts: list[list[float]], truth: tuple[float, ...]) -> None:
    totals = [sum(f * p for f, p in zip(truth, row, strict=True)) for row in parts]
    rows = [(str(i), [p / total for p in row]) for i, (row, total) in enumerate(zip(parts, totals, strict=True))]
    fit = fit_factors(rows, (1.0, 1.0, 1.0))
    for _, row in rows:
        assert sum(f * p for f, p in zip(fit.factors, row, strict=True)) == pytest.approx(1.0, rel=0.3)


@given(st.lists(shares, min_size=1, max_size=10))
def test_work_is_never_free_and_spreads_never_vanish(parts: list[list[float]]) -> None:
    priors = (1.0, 1.4, 1.0)
    fit = fit_factors([(str(i), row) for i, row in enumerate(parts)], priors)
    for factor, prior in zip(fit.factors, priors, strict=True):
        assert LEAST_FACTOR * prior <= factor <= MOST_FACTOR * prior
    assert fit.spread >= LEAST_SPREAD


def test_one_network_measured_while_the_machine_was_busy_bends_nothing() -> None:
    rows = [(str(i), [0.5, 0.5 / 1.4]) for i in range(6)]
    disturbed = fit_factors([*rows, ("disturbed", [0.005, 0.005])], (1.0, 1.4))
    assert disturbed.factors == pytest.approx(fit_factors(rows, (1.0, 1.4)).factors, rel=0.1)


def test_a_class_that_no_network_has_keeps_its_prior() -> None:
    fit = fit_factors([(str(i), [0.5, 0.0]) for i in range(4)], (1.0, 1.4))
    assert fit.factors[0] == pytest.approx(2.0, rel=0.1)
    assert fit.factors[1] == pytest.approx(1.4)


def test_two_networks_cannot_tell_how_good_they_are() -> None:
    assert fit_factors([("a", [1.0]), ("b", [1.0])], (1.0,)).spread == UNFITTED_SPREAD


def test_networks_that_disagree_widen_the_spread() -> None:
    agreeing = fit_factors([(str(i), [0.8]) for i in range(6)], (1.0,))
    disagreeing = fit_factors([(str(i), [0.8 if i % 2 else 0.4]) for i in range(6)], (1.0,))
    assert agreeing.spread == LEAST_SPREAD
    assert disagreeing.spread > 2 * LEAST_SPREAD


def test_an_error_that_two_plans_share_does_not_blur_which_is_faster() -> None:
    errors = {"a": 0.4, "b": -0.3, "c": 0.2, "d": -0.4}
    alike = {name: error + 0.01 for name, error in errors.items()}
    opposite = {name: -error for name, error in errors.items()}
    assert ratio_spread(errors, alike) == LEAST_RATIO_SPREAD
    assert (ratio_spread(errors, opposite) or 0) > 0.8


def test_one_network_whose_price_is_absurd_does_not_hide_which_plan_is_faster() -> None:
    errors = {str(i): 0.1 * (-1) ** i for i in range(16)}
    none = dict.fromkeys(errors, 0.0)
    usual = ratio_spread(errors, none) or 0
    assert usual < (ratio_spread({**errors, "absurd": -6.7}, {**none, "absurd": 0.0}) or 0) < 2 * usual


def test_plans_that_share_no_networks_are_not_compared_closely() -> None:
    assert ratio_spread({"a": 0.1, "b": 0.1, "c": 0.1}, {}) is None
