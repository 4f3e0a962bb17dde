"""What is around an operation in its step."""

from __future__ import annotations

from app.advisor.operation_prices.surroundings import footprint_of, kernel_of, often_of, surroundings
from probes.context import ContextOperation


def an_operation(name: str = "aten.relu", moved: float = 1e6) -> ContextOperation:
    return ContextOperation(name, "elementwise", "", "float32", 0.0, moved / 2, moved / 2)


def test_operations_of_one_name_share_their_code_whatever_their_sizes() -> None:
    small, large = an_operation(moved=1e4), an_operation(moved=1e6)
    apart = often_of([(small, 2), (an_operation("own.operation"), 3)])
    together = often_of([(small, 2), (large, 3)])
    assert together[kernel_of(small)] == together[kernel_of(large)] > apart[kernel_of(small)]


def test_a_footprint_is_of_all_that_the_step_moves() -> None:
    footprint, _ = surroundings([(an_operation(moved=1e6), 3), (an_operation("own.operation", 2e6), 1)])
    assert footprint == footprint_of(5e6)


def test_steps_that_stay_in_the_nearest_caches_are_alike_and_so_are_those_that_leave_nothing_there() -> None:
    assert footprint_of(0.0) == footprint_of(2.0**17) < footprint_of(2.0**25) < footprint_of(2.0**34)
    assert footprint_of(2.0**34) == footprint_of(2.0**40)
