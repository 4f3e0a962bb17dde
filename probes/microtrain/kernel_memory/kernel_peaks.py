"""A step's peak with what kernels take inside, as a curve over the batch: only those that may be the peak are asked.

Which kernel runs, and what it takes, changes with the size: a library copies from some size on, or at a batch of one.
So the curve is looked at from batch to batch, and more closely where it is not straight.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from typing import TypeAlias

from probes.microtrain.kernel_memory.kernel_calls import Call
from probes.microtrain.kernel_memory.scratch import MAX_TRACE_SECONDS, Budget, Inside
from probes.microtrain.traces.merging import affine, highest_lines, same_operations
from probes.microtrain.traces.primed_stepper import Recording
from probes.trace import Affine, Knot

FIRST_SIZES = tuple(2**power for power in range(17))
# Closer than this to the straight line between its neighbours a point adds nothing; above the size it is not worth it.
STRAIGHT = 0.005
FINEST_SIZE = 2**12
# Where a jump lies is looked for as closely as this fraction of the size: exactly up to so many samples.
FINENESS = 64
# A step of no more kernels than these is traced in a second or two, and has twice the time for its trials: the dense
# ones are tried at hundreds of sizes, as the library chooses anew at each.
FEW_KERNELS = 40

Calls: TypeAlias = tuple[Call | None, Call | None]  # of one operation at both batch sizes


class _Place:
    """A call, wherever a step runs it with these arguments. alive: bytes beside what it takes inside."""

    def __init__(self, batch_sizes: tuple[int, int], calls: tuple[Call, Call], alive: set[Affine]) -> None:
        self._alive = highest_lines(alive)
        self._inside = Inside(batch_sizes, *calls)

    def alive_at(self, size: int) -> float:
        return max(line.at(size) for line in self._alive)

    def bound_at(self, size: int) -> float:
        """No more than this with what it takes inside."""
        return self.alive_at(size) + self._inside.bound_at(size)

    def peak_at(self, size: int, budget: Budget) -> float:
        return self.alive_at(size) + self._inside.at(size, budget)


def kernel_peaks(batch_sizes: tuple[int, int], one: Recording, other: Recording) -> tuple[Knot, ...]:
    """Bytes alive at the peak of forward and backward, what kernels take inside included. Empty: the steps differ."""
    if not same_operations(one.records, other.records) or not (computing := one.before_update):
        return ()
    calls = [(one.calls[place], other.calls[place]) for place in computing]
    pairs = [(one.activation_bytes[place], other.activation_bytes[place]) for place in computing]
    lines = _with_copies(batch_sizes, [affine(batch_sizes, pair) for pair in pairs], calls)
    highest = highest_lines(set(lines))
    places = _places(batch_sizes, lines, calls)
    budget = Budget(MAX_TRACE_SECONDS * (2 if len(places) <= FEW_KERNELS else 1))

    def peak_at(size: int) -> int:
        peak = max(0.0, *(line.at(size) for line in highest))
        for place in sorted(places, key=lambda place: -place.bound_at(size)):
            if place.bound_at(size) <= peak:
                break
            peak = max(peak, place.peak_at(size, budget))
        return round(peak)

    return without_straight(curve(peak_at))


def _with_copies(batch_sizes: tuple[int, int], lines: list[Affine], calls: list[Calls]) -> list[Affine]:
    """With the copies of weights that a layer made inside itself from its end on."""
    kept, found = 0, []
    for line, (a, b) in zip(lines, calls, strict=True):
        kept += Inside(batch_sizes, a, b).kept() if a and b and a.autocast else 0
        found.append(Affine(line.constant + kept, line.per_sample))
    return found


def _places(batch_sizes: tuple[int, int], lines: list[Affine], calls: list[Calls]) -> list[_Place]:
    alive: dict[tuple[Call, Call], set[Affine]] = defaultdict(set)
    for line, (a, b) in zip(lines, calls, strict=True):
        if a and b:
            alive[a, b].add(line)
    return [_Place(batch_sizes, calls, lines) for calls, lines in alive.items()]


def curve(at: Callable[[int], int]) -> list[Knot]:
    """Points of it, so many that it is straight between them; a jump is between two neighbours."""
    knots = [Knot(size, at(size)) for size in FIRST_SIZES]
    found = knots[:1]
    for low, high in pairwise(knots):
        found += [*_between(at, low, high), high]
    return found


def _between(at: Callable[[int], int], low: Knot, high: Knot) -> list[Knot]:
    size = (low.batch_size + high.batch_size) // 2
    if high.batch_size - low.batch_size <= max(1, low.batch_size // FINENESS) or size > FINEST_SIZE:
        return []
    middle = Knot(size, at(size))
    if abs(middle.bytes - _line(low, high).at(size)) <= STRAIGHT * middle.bytes:
        return []
    return [*_between(at, low, middle), middle, *_between(at, middle, high)]


def _line(low: Knot, high: Knot) -> Affine:
    return affine((low.batch_size, high.batch_size), (low.bytes, high.bytes))


def without_straight(knots: list[Knot]) -> tuple[Knot, ...]:
    """Without the points that lie on the line between their neighbours."""
    kept = knots[:2]
    for knot in knots[2:]:
        if abs(_line(kept[-2], kept[-1]).at(knot.batch_size) - knot.bytes) < 2:
            kept[-1] = knot
        else:
            kept.append(knot)
    return tuple(kept)
