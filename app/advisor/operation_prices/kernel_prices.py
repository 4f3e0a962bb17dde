"""What an operation's kernels take on a device, inside a step: read off those that were clocked there.

The baseline is the device's roof: the least that a kernel takes, and the longer of its arithmetic at the best rate
measured and its bytes at the best bandwidth measured (app.advisor.operation_prices.roofs). How many times as long a
kernel takes is a smooth function of where it lies below that roof (app.advisor.operation_prices.samples).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from app.advisor.operation_prices.context_prices import HEAVY_KINDS, WINDOW_WEIGHT, written_of
from app.advisor.operation_prices.device_operations import same_kernel
from app.advisor.operation_prices.remembered import Remembered
from app.advisor.operation_prices.roofs import Roof, roof_of
from app.advisor.operation_prices.samples import Place, Sample, Samples
from app.advisor.operation_prices.surroundings import moved_bytes
from probes.context import Context, ContextOperation
from probes.points import Point


class Doubt(NamedTuple):
    """Logarithms of how many times as quick, and as slow, a kernel may be as it is told to be."""

    quicker: float
    slower: float


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

    def doubt(self, operation: ContextOperation) -> Doubt:
        """Beyond what is unknown at sizes that were clocked. A larger kernel than any of its like that was clocked is
        told to be as many times the roof as these: it may come nearer to the roof, as larger ones do, down to taking no
        longer than the largest of them. Of either card's clocked kernels, with the larger ones hidden, what was told
        too long in nine cases of ten was by no more than one e-fold for each of distance, and hardly any too short
        (docs/decisions/0016)."""
        operation = same_kernel(operation)
        of_roof, place = self.roof.doubt(operation), self._place(operation)
        key, samples = self._like(operation)
        if samples is None:
            return Doubt(of_roof, of_roof)
        above = self._log_ratio(operation, place, None) - self._least(key, samples)
        return Doubt(of_roof + min(max(place[0] - samples.largest, 0.0), above), of_roof)

    def _log_ratio(self, operation: ContextOperation, place: Place, without: str | None) -> float:
        key, samples = self._like(operation, without)
        if samples is None:
            return 0.0
        if without is not None:
            return max(samples.log_ratio_at(place), self._least(key, samples, without))
        found = self._remembered.at(key, place, samples.log_ratio_at)
        return max(found, self._least(key, samples))

    def _like(self, operation: ContextOperation, without: str | None = None) -> tuple[Hashable, Samples | None]:
        """The samples that tell the most of it, by their key."""
        for key in _keys(operation):
            samples = self.samples.get(key)
            if samples is not None and without is not None:
                samples = self._without(key, samples, without)
            if samples is not None and samples.rows:
                return key, samples
        return (), None

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
    roof = roof_of(clocked, points) if clocked else None
    if roof is None:
        return None
    prices = KernelPrices(roof)
    for context in clocked:
        prices.learn(context)
    return prices


def _keys(operation: ContextOperation) -> tuple[Hashable, ...]:
    """From the most telling to the least."""
    name, kind, variant, dtype = operation[:4]
    return (name, variant, dtype), (name, dtype), (name,), (kind, dtype), (kind,), ()
