"""What issuing takes, by a name's first and each after it."""

from __future__ import annotations

import pytest

from app.advisor.operation_prices.issuing_prices import FIRST, Run, count_names, fit_price, issuing_prices
from probes.context import Clock, Context, ContextOperation, OperationCost
from probes.workload.description import Mode, Plan

CARD, CARD_BF16 = Plan("cuda:0", "fp32"), Plan("cuda:0", "bf16")
ADD = ContextOperation("aten.add", "elementwise", "", "float32", 0.0, 800.0, 400.0)
PRODUCT = ContextOperation("aten.mm", "matmul", "", "float32", 1e6, 800.0, 400.0)


def context(
    network: str, costs: dict[ContextOperation, tuple[int, float]], mode: Mode = "training", clock: Clock = "host"
) -> Context:
    rows = tuple(OperationCost(each, times, seconds, 0.1) for each, (times, seconds) in costs.items())
    return Context(network, 4, mode, CARD, rows, clock=clock)


def test_the_first_and_each_are_found_where_steps_run_few_and_many() -> None:
    runs = [Run(str(times), times, 30e-6 + 10e-6 * times) for times in (1, 2, 5, 20, 80)]
    price = fit_price(runs)
    assert price.seconds(40) == pytest.approx(430e-6, rel=0.1)
    assert price.seconds(1) == pytest.approx(40e-6, rel=0.15)


def test_one_that_ran_once_is_held_to_the_usual() -> None:
    price = fit_price([Run("a", 1, 40e-6)])
    assert price.seconds(1) == pytest.approx(40e-6, rel=0.05)
    assert price.each == pytest.approx(40e-6 / FIRST, rel=0.2)


def test_a_burst_moves_a_price_little_and_none_is_free() -> None:
    runs = [Run(str(times), times, 10e-6 * times) for times in (1, 2, 5, 20)]
    disturbed = fit_price([*runs, Run("burst", 3, 3e-3)])
    assert disturbed.seconds(20) == pytest.approx(fit_price(runs).seconds(20), rel=0.15)
    falling = fit_price([Run("a", 1, 100e-6), Run("b", 50, 100e-6)])
    assert falling.each > 0
    assert falling.extra >= 0


def test_times_that_no_clock_can_have_told_are_priced_all_the_same() -> None:
    price = fit_price([Run("a", 1, 1e-9), Run("b", 1, 1.0), Run("c", 1, 1.0)])
    assert price.seconds(2) > 0


def test_a_name_that_was_never_issued_costs_what_its_kind_does_and_a_kind_what_all_do() -> None:
    prices = issuing_prices([context("a", {ADD: (4, 10e-6), PRODUCT: (4, 30e-6)})], "training")
    assert prices is not None
    known = prices.seconds({("aten.mm", "matmul"): 4})
    assert known == pytest.approx(120e-6, rel=0.05)
    assert prices.seconds({("aten.bmm", "matmul"): 4}) == pytest.approx(known)
    assert prices.seconds({("aten.sum", "reduction"): 8}) == pytest.approx(160e-6, rel=0.05)
    assert prices.seconds({}) == 0.0


def test_left_out_a_network_tells_nothing() -> None:
    contexts = [context("a", {ADD: (4, 10e-6)}), context("b", {ADD: (4, 90e-6)})]
    prices = issuing_prices(contexts, "training")
    assert prices is not None
    counts = {("aten.add", "elementwise"): 4.0}
    assert prices.seconds(counts, "b") == pytest.approx(40e-6, rel=0.05)  # type: ignore[arg-type]
    assert prices.seconds(counts, "a") == pytest.approx(360e-6, rel=0.05)  # type: ignore[arg-type]


def test_steps_of_the_same_mode_count_before_those_of_the_other_and_the_devices_clock_not_at_all() -> None:
    contexts = [
        context("a", {ADD: (4, 10e-6)}),
        context("b", {ADD: (4, 50e-6), PRODUCT: (4, 50e-6)}, mode="inference"),
        context("c", {ADD: (4, 1.0)}, clock="device"),
    ]
    prices = issuing_prices(contexts, "training")
    assert prices is not None
    assert prices.seconds({("aten.add", "elementwise"): 4}) == pytest.approx(40e-6, rel=0.05)
    assert prices.seconds({("aten.mm", "matmul"): 4}) == pytest.approx(200e-6, rel=0.05)
    assert issuing_prices(contexts[2:], "training") is None


def test_names_are_counted_by_what_they_are_in_any_library() -> None:
    flash = ContextOperation("aten._scaled_dot_product_flash_attention", "attention", "", "float16", 1.0, 1.0, 1.0)
    efficient = flash._replace(name="aten._scaled_dot_product_efficient_attention", dtype="float32")
    counts = count_names([(flash, 2), (efficient, 3), (ADD, 1)])
    assert counts == {("aten.scaled_dot_product_attention", "attention"): 5, ("aten.add", "elementwise"): 1}
