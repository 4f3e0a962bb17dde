"""What a block takes is read off kernels that were timed, whatever a block costs to begin."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.advisor.operation_prices.block_prices import BlockPrice, block_price
from probes.context import ContextOperation, OperationCost


def a_cost(blocks: int, grain: float, each: float, a_flop: float) -> OperationCost:
    operation = ContextOperation("aten.attention", "attention", "", "bfloat16", blocks * grain, 1e3, 1e3, grain)
    return OperationCost(operation, 1, blocks * (each + grain * a_flop), 0.1)


@given(st.floats(0.0, 1e-4), st.floats(1e-12, 1e-9))
def test_both_parts_are_found(each: float, a_flop: float) -> None:
    price = block_price([a_cost(blocks, grain, each, a_flop) for blocks in (1, 96) for grain in (1e5, 1e6, 1e7)])
    assert price is not None
    for grain in (1e4, 3e6, 1e8):
        assert price.seconds(20 * grain, grain) == pytest.approx(20 * (each + grain * a_flop), rel=1e-3)


def test_blocks_that_take_no_longer_for_more_arithmetic_have_no_price_a_flop() -> None:
    price = block_price([a_cost(4, 1e5, 6e-5, 0.0), a_cost(4, 1e6, 5e-5, 0.0)])
    assert price is not None
    assert price.a_flop == 0.0
    assert 5e-5 <= price.each <= 6e-5


def test_arithmetic_that_grows_faster_than_its_flops_costs_nothing_to_begin() -> None:
    price = block_price([a_cost(4, 1e5, 0.0, 1e-11), a_cost(4, 1e6, 0.0, 3e-11)])
    assert price is not None
    assert price.each == 0.0
    assert 1e-11 <= price.a_flop <= 3e-11


def test_of_one_grain_all_is_arithmetic() -> None:
    assert block_price([a_cost(4, 1e6, 5e-5, 0.0)]) == BlockPrice(0.0, pytest.approx(5e-11))


def test_without_blocks_there_is_no_price() -> None:
    whole = ContextOperation("aten.mm", "matmul", "", "float32", 1e6, 1e3, 1e3)
    assert block_price([OperationCost(whole, 1, 1e-5, 0.1)]) is None
    assert block_price([]) is None


def test_less_than_a_block_takes_a_block() -> None:
    assert BlockPrice(1e-5, 0.0).seconds(10.0, 1e6) == 1e-5
