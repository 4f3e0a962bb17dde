"""What an operation's kernels take on a device, inside a step: read off those that were clocked there.

The baseline is the device's roof: the least that a kernel takes, and the longer of its arithmetic at the best rate
measured and its bytes at the best bandwidth measured (Williams, Waterman and Patterson, 2009, "Roofline"). How many
times as long a kernel takes is a smooth function of where it lies below that roof
(app.advisor.operation_prices.samples).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from app.advisor.operation_prices.context_prices import HEAVY_KINDS, WINDOW_WEIGHT, written_of
from app.advisor.operation_prices.device_operations import same_kernel
from app.advisor.operation_prices.remembered import Remembered
from app.advisor.operation_prices.samples import Place, Sample, Samples
from app.advisor.operation_prices.surroundings import moved_bytes
from probes.context import Context, ContextOperation
from probes.points import Point

MOVING = ("bandwidth", "elementwise")  # constants that tell how fast bytes move
TURN_FLOORS = 3.0  # a recurrent layer's step waits for the one before: so many times what the shortest kernel takes
# Operations that are many kernels, one after the other, on a device too: attention of several heads by its projections,
# the scores and their shares, and a layer of a transformer by that, two products, two norms, two additions and what is
# between the products (torch's source, aten/src/ATen/native/transformers/attention.cpp, transformer.cpp; which kernels
# are one, and so from nine to thirteen in a layer, is the library's choice). The shortest of them take as many times
# what the shortest kernel takes, which says nothing of how quickly the longest compute.
KERNELS_OF = {"aten._native_multi_head_attention": 5.0, "aten._transformer_encoder_layer_fwd": 12.0}


@dataclass(frozen=True, slots=True)
class Roof:
    """Seconds, flops a second and bytes a second: the best that was measured."""

    floor: float
    flops: float
    bandwidth: float

    def seconds(self, operation: ContextOperation) -> float:
        turns = KERNELS_OF.get(operation.name, 1.0)
        if operation.kind == "recurrent" and operation.grain >= 1:
            turns = TURN_FLOORS * operation.grain
        return turns * self.floor + max(operation.flops / self.flops, moved_bytes(operation) / self.bandwidth)


@dataclass
class KernelPrices:
    roof: Roof
    samples: dict[Hashable, Samples] = field(default_factory=lambda: defaultdict(Samples))
    _remembered: Remembered = field(default_factory=Remembered)
    _left_out: dict[tuple[Hashable, str], Samples] = field(default_factory=dict)
    _quickest: dict[tuple[Hashable, str | None], float] = field(default_factory=dict)  # by key and network left out

    def seconds(self, operation: ContextOperation, without: str | None = None) -> float:
        """Of one execution. without: as if this network had never been clocked."""
        if operation.kind == "view":
            return 0.0
        operation = same_kernel(operation)
        place = self._place(operation)
        return self.roof.seconds(operation) * math.exp(self._log_ratio(operation, place, without))

    def _log_ratio(self, operation: ContextOperation, place: Place, without: str | None) -> float:
        for key in _keys(operation):
            samples = self.samples.get(key)
            if samples is not None and without is not None:
                samples = self._without(key, samples, without)
            if samples is None or not samples.rows:
                continue
            if without is not None:
                return max(samples.log_ratio_at(place), self._least(key, samples, without))
            found = self._remembered.at(key, place, samples.log_ratio_at)
            return max(found, self._least(key, samples))
        return 0.0

    def _least(self, key: Hashable, samples: Samples, without: str | None = None) -> float:
        """The roof, or the quickest that was clocked: far from all samples their slope leads on to below either."""
        found = self._quickest.get((key, without))
        if found is None:
            found = self._quickest[key, without] = min(0.0, min(row.log_ratio for row in samples.rows))
        return found

    def _without(self, key: Hashable, samples: Samples, network: str) -> Samples:
        found = self._left_out.get((key, network))
        if found is None:
            found = self._left_out[key, network] = samples.without(network)
        return found

    def learn(self, context: Context) -> None:
        for cost in context.costs:
            operation = same_kernel(cost.operation)
            ratio = math.log(cost.seconds / self.roof.seconds(operation))
            for key in _keys(operation):
                self.samples[key].add(Sample(context.network, *self._place(operation), ratio))

    def finish_fitting(self) -> None:
        """No more network is left out: keep nothing that only that takes."""
        self._left_out.clear()
        self._quickest.clear()
        for samples in self.samples.values():
            samples.finish_fitting()

    def get_ready(self) -> None:
        """Solve now what the first questions would wait for."""
        for samples in self.samples.values():
            samples.get_ready()

    def _place(self, operation: ContextOperation) -> Place:
        """Logarithms: of what the roof says, of the arithmetic a byte (of a pool the numbers in a window, of lists how
        many tensors they have), and how much is written. What a recurrent layer takes goes with its step."""
        least = self.roof.seconds(operation)
        if operation.kind == "recurrent":
            return math.log(least / max(operation.grain, 1.0)), 0.0, 0.0, 0.0, 0.0
        intensity = 0.0
        if operation.kind in HEAVY_KINDS and operation.flops >= 1:
            intensity = math.log(operation.flops / (moved_bytes(operation) + 1.0))
        elif operation.grain >= 1:
            intensity = WINDOW_WEIGHT * math.log(operation.grain)
        return math.log(least), intensity, written_of(operation), 0.0, 0.0


def kernel_prices(contexts: Iterable[Context], points: Sequence[Point]) -> KernelPrices | None:
    """Of one plan. None where none was clocked, or nothing tells the roof."""
    clocked = [context for context in contexts if context.clock == "device" and context.costs]
    flops = max((p.flops / p.seconds.low for p in points if p.constant == "matmul" and p.flops > 0), default=0.0)
    bandwidth = max((p.bytes / p.seconds.low for p in points if p.constant in MOVING and p.bytes > 0), default=0.0)
    if not clocked or not flops or not bandwidth:
        return None
    prices = KernelPrices(Roof(min(context.shortest for context in clocked), flops, bandwidth))
    for context in clocked:
        prices.learn(context)
    return prices


def _keys(operation: ContextOperation) -> tuple[Hashable, ...]:
    """From the most telling to the least."""
    name, kind, variant, dtype = operation[:4]
    return (name, variant, dtype), (name, dtype), (name,), (kind, dtype), (kind,), ()
