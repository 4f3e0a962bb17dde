"""What each block takes of a kernel that works through blocks: so much whatever its arithmetic, and so much a FLOP."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from probes.context import OperationCost


class BlockPrice(NamedTuple):
    """each: seconds of a block without arithmetic (what its products cost to begin). a_flop: seconds of each FLOP."""

    each: float
    a_flop: float

    def seconds(self, flops: float, grain: float) -> float:
        """Of an operation of so many FLOPs, grain of them in each block."""
        return max(1.0, flops / grain) * (self.each + grain * self.a_flop)


def block_price(costs: Iterable[OperationCost]) -> BlockPrice | None:
    """Of one kernel's operations: the line over the grain whose relative errors are smallest (least squares), neither
    part below nothing. None of nothing."""
    squares = [0.0, 0.0, 0.0]
    sums = [0.0, 0.0]
    for cost in costs:
        operation = cost.operation
        if operation.grain < 1 or operation.flops < 1:
            continue
        seconds = cost.seconds / max(1.0, operation.flops / operation.grain)
        one, flops = 1.0 / seconds, operation.grain / seconds
        squares = [squares[0] + one * one, squares[1] + one * flops, squares[2] + flops * flops]
        sums = [sums[0] + one, sums[1] + flops]
    if not sums[0]:
        return None
    determinant = squares[0] * squares[2] - squares[1] * squares[1]
    if determinant > 1e-6 * squares[0] * squares[2]:
        each = (sums[0] * squares[2] - sums[1] * squares[1]) / determinant
        a_flop = (sums[1] * squares[0] - sums[0] * squares[1]) / determinant
        if each >= 0 and a_flop >= 0:
            return BlockPrice(each, a_flop)
        if a_flop < 0:
            return BlockPrice(sums[0] / squares[0], 0.0)
    return BlockPrice(0.0, sums[1] / squares[2])
