"""How long one calibration's operations took beside the others'."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping

import pytest

from app.advisor.time_model.levels import Costs, Levels
from probes.context import ContextOperation, OperationCost

MM = ContextOperation("aten.mm", "matmul", "", "float32", 1e6, 1e5, 1e5)
ADD = ContextOperation("aten.add", "elementwise", "", "float32", 0.0, 800.0, 400.0)


def costs(seconds: Mapping[ContextOperation, float]) -> Costs:
    return [OperationCost(operation, 1, taken, 0.0) for operation, taken in seconds.items()]


def sized(operation: ContextOperation, size: float) -> ContextOperation:
    return operation._replace(flops=operation.flops * size, read_bytes=operation.read_bytes * size)


def a_calibration(large: float, small: float, add: float) -> dict[Hashable, Costs]:
    """Products of 1 us to 128 us take `large` times as long from 16 us on, and `small` times below."""
    products = {sized(MM, 2.0**i): 1e-6 * 2.0**i * (large if i >= 4 else small) for i in range(8)}
    again = {sized(MM, 1.1 * 2.0**i): 1.1e-6 * 2.0**i * (large if i >= 4 else small) for i in range(8)}
    third = {sized(MM, 1.2 * 2.0**i): 1.2e-6 * 2.0**i * (large if i >= 4 else small) for i in range(8)}
    return {
        "products": costs(products),
        "again": costs(again),
        "third": costs(third),
        "sums": costs({sized(ADD, i): 1e-6 * i * add for i in range(1, 9)}),
    }


def test_operations_that_take_as_long_tell_the_level() -> None:
    """A neighbour slows what fills the cores, and not what is issued and done."""
    levels = Levels([a_calibration(4.0, 1.0, 1.0), a_calibration(1.0, 1.0, 1.0)])
    assert levels.log_level(sized(MM, 50.0), 100e-6, [0]) == pytest.approx(math.log(2))
    assert levels.log_level(sized(MM, 50.0), 50e-6, [1]) == pytest.approx(-math.log(2))
    assert levels.log_level(sized(MM, 1.5), 1.5e-6, [0]) == pytest.approx(0.0)
    assert levels.log_level(ADD, 100e-6, [0]) == pytest.approx(0.0)


def test_all_together_are_level() -> None:
    levels = Levels([a_calibration(4.0, 1.0, 1.0), a_calibration(1.0, 1.0, 1.0)])
    assert levels.log_level(MM, 100e-6, [0, 1]) == 0.0


def test_a_kernel_that_was_not_timed_by_all_is_as_its_kind() -> None:
    levels = Levels([a_calibration(1.0, 1.0, 9.0), a_calibration(1.0, 1.0, 1.0)])
    mul = ADD._replace(name="aten.mul")
    assert levels.log_level(mul, 5e-6, [0]) == pytest.approx(math.log(3))


def test_nothing_in_common_says_nothing() -> None:
    levels = Levels([{"one": costs({ADD: 1e-6})}, {"other": costs({ADD: 9e-6})}])
    assert levels.log_level(ADD, 1e-6, [0]) == 0.0
