"""What is known of a device's roof, and what is not."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from app.advisor.operation_prices.roofs import Rate, Roof, roof_of
from probes.context import Context, ContextOperation, OperationCost
from probes.measurement import Timing
from probes.points import Point
from probes.workload.description import Plan

CARD = Plan("cuda:0", "fp32")
RATE, BANDWIDTH, FLOOR = 5e13, 2e12, 1e-6
ISSUING = 1e-5  # what a point takes at least, timed by the host
PRODUCT = ContextOperation("aten.mm", "matmul", "", "float32", 1e10, 1e5, 1e5)
SUM = ContextOperation("aten.add", "elementwise", "", "float32", 0.0, 1e8, 1e8)
SMALL = SUM._replace(read_bytes=8.0, written_bytes=8.0)


def points(constant: str, sizes: tuple[float, ...], rate: float) -> list[Point]:
    found = []
    for size in sizes:
        flops, moved = (size, 0.0) if constant == "matmul" else (0.0, size)
        timing = Timing.from_samples([max(ISSUING, size / rate)] * 3)
        found.append(Point(constant, CARD, {}, flops, moved, timing))
    return found


ALL_PRODUCTS, SMALL_PRODUCTS = (1e6, 1e8, 1e10, 2e11), (1e5, 1e6, 1e7, 1e8)
MOVES = points("bandwidth", (1e6, 1e7, 1e8, 1e9), BANDWIDTH)


def a_roof(products: tuple[float, ...], inside: Mapping[ContextOperation, float] | None = None) -> Roof:
    ran = inside or {SMALL: FLOOR}
    costs = tuple(OperationCost(operation, 1, seconds, 0.0) for operation, seconds in ran.items())
    context = Context("a", 4, "training", CARD, costs, clock="device")
    found = roof_of([context], [*points("matmul", products, RATE), *MOVES])
    assert found is not None
    return found


def test_a_rate_that_has_levelled_off_is_the_roof_at_any_size() -> None:
    roof = a_roof(ALL_PRODUCTS)
    for flops in (1e9, 1e12, 1e15):
        assert roof.flops.at(flops) == pytest.approx(RATE)
        assert roof.flops.doubt(flops) == roof.doubt(PRODUCT._replace(flops=flops)) == 0
    assert roof.bandwidth.at(1e12) == pytest.approx(BANDWIDTH)


@pytest.mark.parametrize("flops", [1e10, 1e12])
def test_products_that_took_no_longer_the_larger_they_were_tell_a_lower_bound_alone(flops: float) -> None:
    """A hundred times as much work takes from as long as the largest of them to a hundred times as long."""
    roof, longest = a_roof(SMALL_PRODUCTS), 1e8 / ISSUING
    assert roof.flops.best == pytest.approx(longest)
    told, doubt = flops / roof.flops.at(flops), roof.doubt(PRODUCT._replace(flops=flops))
    assert told * math.exp(-doubt) == pytest.approx(ISSUING)
    assert told * math.exp(doubt) == pytest.approx(flops / longest)
    assert flops <= 1e10 or told * math.exp(-doubt) < flops / RATE < told * math.exp(doubt)


def test_at_sizes_that_were_timed_nothing_is_in_doubt() -> None:
    assert a_roof(SMALL_PRODUCTS).doubt(PRODUCT._replace(flops=5e7)) == 0


def test_a_product_inside_a_step_that_was_quicker_than_all_alone_is_the_roof() -> None:
    """The device's clock tells no issuing, which was most of what the points took."""
    inside = {PRODUCT._replace(flops=flops): flops / RATE for flops in (1e7, 5e7)}
    roof = a_roof(SMALL_PRODUCTS, inside)
    assert roof.flops == Rate(pytest.approx(RATE), pytest.approx(5e7), pytest.approx(0.0))


def test_bytes_that_a_cache_may_hold_raise_no_bandwidth() -> None:
    small = SUM._replace(read_bytes=1e7, written_bytes=1e7)
    assert a_roof(ALL_PRODUCTS, {small: 2e7 / (4 * BANDWIDTH)}).bandwidth.best == pytest.approx(BANDWIDTH)
    large = SUM._replace(read_bytes=1e9, written_bytes=1e9)
    assert a_roof(ALL_PRODUCTS, {large: 2e9 / (1.1 * BANDWIDTH)}).bandwidth.best == pytest.approx(1.1 * BANDWIDTH)


def test_of_one_size_alone_it_is_not_known_that_the_rate_has_levelled_off() -> None:
    assert a_roof((1e8, 1.5e8)).flops.rising == 1.0
    assert roof_of([], MOVES) is None
    assert roof_of([], points("matmul", ALL_PRODUCTS, RATE)) is None
