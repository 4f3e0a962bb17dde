"""A device's roof: the least that a kernel takes there, by the best that was measured (Williams, Waterman and
Patterson, 2009, "Roofline")."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from app.advisor.operation_prices.surroundings import moved_bytes
from probes.context import Context, ContextOperation, OperationCost
from probes.points import Point

MOVING = ("bandwidth", "elementwise")  # constants that tell how fast bytes move
TURN_FLOORS = 3.0  # a recurrent layer's step waits for the one before: so many times what the shortest kernel takes
# Operations that are many kernels, one after the other, on a device too: attention of several heads by its projections,
# the scores and their shares, and a layer of a transformer by that, two products, two norms, two additions and what is
# between the products (torch's source, aten/src/ATen/native/transformers/attention.cpp, transformer.cpp; which kernels
# are one, and so from nine to thirteen in a layer, is the library's choice). The shortest of them take as many times
# what the shortest kernel takes, which says nothing of how quickly the longest compute.
KERNELS_OF = {"aten._native_multi_head_attention": 5.0, "aten._transformer_encoder_layer_fwd": 12.0}
# Sizes within so many e-folds of the largest tell the rate there, those below whether it still rises: two shapes of one
# size may differ by a factor of two, which is little over so much work.
NEAR_THE_LARGEST = 2.0


class Ran(NamedTuple):
    """What was timed: flops or bytes, and as many a second."""

    size: float
    rate: float

    @property
    def seconds(self) -> float:
        return self.size / self.rate


@dataclass(frozen=True, slots=True)
class Rate:
    """Flops or bytes a second: the best that was measured. size: of the largest work that tells it. rising: the slope
    with which it still rose there, in logarithms of rate and size: 0 where it had levelled off, 1 where larger work
    took no longer, so that no more than a lower bound is known."""

    best: float
    size: float = math.inf
    rising: float = 0.0

    def at(self, size: float) -> float:
        """Of larger work half-way (a logarithm) between going on to rise like that and rising no more."""
        return self.best * math.exp(self.doubt(size))

    def doubt(self, size: float) -> float:
        """The logarithm of how many times as quick, or as slow, it may be."""
        return 0.5 * self.rising * math.log(size / self.size) if size > self.size else 0.0


@dataclass(frozen=True, slots=True)
class Roof:
    """floor: seconds of the shortest kernel."""

    floor: float
    flops: Rate
    bandwidth: Rate

    def seconds(self, operation: ContextOperation) -> float:
        turns = KERNELS_OF.get(operation.name, 1.0)
        if operation.kind == "recurrent" and operation.grain >= 1:
            turns = TURN_FLOORS * operation.grain
        return turns * self.floor + max(self._arithmetic(operation), self._moving(operation))

    def doubt(self, operation: ContextOperation) -> float:
        """As of the rate that is this operation's limit."""
        if self._arithmetic(operation) > self._moving(operation):
            return self.flops.doubt(operation.flops)
        return self.bandwidth.doubt(moved_bytes(operation))

    def _arithmetic(self, operation: ContextOperation) -> float:
        return operation.flops / self.flops.at(operation.flops)

    def _moving(self, operation: ContextOperation) -> float:
        moved = moved_bytes(operation)
        return moved / self.bandwidth.at(moved)


def roof_of(clocked: Sequence[Context], points: Iterable[Point]) -> Roof | None:
    """None where nothing tells it. clocked: by the device; without, no floor is known."""
    products, moves = [], []
    for point in points:
        if point.constant == "matmul" and point.flops > 0:
            products.append(Ran(point.flops, point.flops / point.seconds.low))
        elif point.constant in MOVING and point.bytes > 0:
            moves.append(Ran(point.bytes, point.bytes / point.seconds.low))
    if not products or not moves:
        return None
    costs = [cost for context in clocked for cost in context.costs if cost.seconds > 0]
    floor = min((context.shortest for context in clocked), default=0.0)
    return Roof(floor, _rate_of_products(products, costs), _rate_of_moving(moves, costs))


def _rate_of_products(alone: list[Ran], costs: Sequence[OperationCost]) -> Rate:
    """The device's clock tells those inside steps, of which issuing is no part, as it is of small ones alone."""
    inside = [
        Ran(cost.operation.flops, cost.operation.flops / cost.seconds)
        for cost in costs
        if cost.operation.kind == "matmul" and cost.operation.flops > 0
    ]
    ran = [*alone, *inside]
    return _levelled(ran, max(each.rate for each in ran))


def _rate_of_moving(alone: list[Ran], costs: Sequence[OperationCost]) -> Rate:
    """Of what is smaller than the largest that was timed alone a cache may hold all: it tells no more than that
    nothing rises."""
    inside = [
        Ran(moved, moved / cost.seconds)
        for cost in costs
        if cost.operation.kind == "elementwise" and (moved := moved_bytes(cost.operation)) > 0
    ]
    largest = max(each.size for each in alone)
    telling = [*alone, *(each for each in inside if each.size >= largest)]
    return _levelled([*alone, *inside], max(each.rate for each in telling))


def _levelled(ran: Sequence[Ran], best: float) -> Rate:
    """With the slope that it has at the largest, where work takes a floor and its size over a rate: the floor's share
    of what the largest took."""
    least = max(each.size for each in ran) * math.exp(-NEAR_THE_LARGEST)
    top = max((each for each in ran if each.size >= least), key=lambda each: each.rate)
    below = max((each for each in ran if each.size < least), key=lambda each: each.rate, default=None)
    if below is None:
        return Rate(best, top.size, 1.0)
    took, more = below.seconds / top.seconds, below.size / top.size
    return Rate(best, top.size, min(max((took - more) / (1.0 - more), 0.0), 1.0))
