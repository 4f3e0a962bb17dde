"""Bytes alive at a step's peak as a function of the batch: asked both ways round."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from itertools import combinations, pairwise

from app.advisor.memory_model.stretches import Stretch, Stretches, joined
from probes.trace import Affine, Knot


@dataclass(frozen=True, slots=True)
class Peaks:
    """lines: the highest of them counts; which moment of a step is the peak depends on the batch. knots: points that
    count instead of lines as far as they go, by growing batch size, straight between them. Beyond the last one the
    stretch before it goes on and is one of the lines: a moment that was the peak nowhere before may grow faster."""

    lines: tuple[Affine, ...] = ()
    knots: tuple[Knot, ...] = ()

    def at(self, batch_size: float) -> float:
        if not self.knots or batch_size > self.knots[-1].batch_size:
            return max(line.at(batch_size) for line in (*self._beyond(), Affine(0.0, 0.0)))
        place = bisect_right(self.knots, batch_size, key=lambda knot: knot.batch_size)
        return max(_line(self.knots, min(max(place, 1), len(self.knots) - 1)).at(batch_size), 0.0)

    def within(self, room: float) -> Stretches:
        """The batches whose peak is no more than that."""
        if room < 0:
            return NO_BATCH
        first, last = (self.knots[0].batch_size, self.knots[-1].batch_size) if self.knots else (1, 0)
        found = [_below((_line(self.knots, 1),), room, 1, first - 1)] if first > 1 else []
        found += [_between(low, high, room) for low, high in pairwise(self.knots)]
        found.append(_below(self._beyond(), room, last + 1, None))
        return joined(stretch for stretch in found if stretch is not None)

    def plus(self, constant: float, factor: float) -> Peaks:
        """Scaled by the factor, and so much more."""
        lines = tuple(Affine(line.constant * factor + constant, line.per_sample * factor) for line in self.lines)
        return Peaks(lines, tuple(Knot(knot.batch_size, knot.bytes * factor + constant) for knot in self.knots))

    def and_with(self, other: Peaks) -> Peaks:
        """The sum of both. other: given by knots, or nothing."""
        if not other.knots:
            return self
        sizes = {knot.batch_size for knot in (*self.knots, *other.knots)} | self._bends_beyond()
        sizes.add(2 * max(sizes))
        return Peaks(knots=tuple(Knot(size, self.at(size) + other.at(size)) for size in sorted(sizes)))

    def at_least(self, lines: tuple[Affine, ...]) -> Peaks:
        """The higher of both at each batch size. lines: of them the highest counts."""
        if not lines:
            return self
        if all(max(line.at(knot.batch_size) for line in lines) <= knot.bytes for knot in self.knots):
            return Peaks((*self.lines, *lines), self.knots)
        last = _line(self.knots, len(self.knots) - 1)
        sizes = {knot.batch_size for knot in self.knots} | self._crossings(lines)
        found = tuple(Knot(size, max(self.at(size), *(line.at(size) for line in lines))) for size in sorted(sizes))
        return Peaks((*self.lines, last, *lines), found)

    def _crossings(self, lines: tuple[Affine, ...]) -> set[int]:
        """Batch sizes around which one of the lines goes through a stretch between two knots, or through another."""
        found: set[int] = set()
        for place, (low, high) in enumerate(pairwise(self.knots), start=1):
            around = _bends((_line(self.knots, place), *lines))
            found |= {size for size in around if low.batch_size < size < high.batch_size}
        return found

    def _beyond(self) -> tuple[Affine, ...]:
        """The highest of these counts where there are no knots, or no more."""
        return (*self.lines, _line(self.knots, len(self.knots) - 1)) if self.knots else self.lines

    def _bends_beyond(self) -> set[int]:
        """Batch sizes beyond the knots around which another line becomes the highest, and the first of all."""
        last = self.knots[-1].batch_size if self.knots else 0
        return {last + 1, *(size for size in _bends(self._beyond()) if size > last)}


NOTHING = Peaks()
NO_BATCH = Stretches(())


def _bends(lines: tuple[Affine, ...]) -> set[int]:
    """Batch sizes around which another line becomes the highest, or the first one rises above nothing."""
    found: set[int] = set()
    for one, other in combinations((*lines, Affine(0.0, 0.0)), 2):
        if one.per_sample != other.per_sample:
            at = (other.constant - one.constant) / (one.per_sample - other.per_sample)
            found |= {math.floor(at), math.ceil(at)} if at >= 1 else set()
    return found


def _line(knots: tuple[Knot, ...], place: int) -> Affine:
    """Through the knot there and the one before it."""
    (low, low_bytes), (high, high_bytes) = knots[place - 1], knots[place]
    slope = (high_bytes - low_bytes) / (high - low)
    return Affine(low_bytes - slope * low, slope)


def _below(lines: tuple[Affine, ...], room: float, first: int, last: int | None) -> Stretch | None:
    """Of the batches from the first to the last those at which no line is above it; None: there are none."""
    for line in lines:
        if line.per_sample > 0:
            most = math.floor((room - line.constant) / line.per_sample)
            last = most if last is None else min(last, most)
        elif line.per_sample < 0:
            first = max(first, math.ceil((room - line.constant) / line.per_sample))
        elif line.constant > room:
            return None
    return None if last is not None and last < first else Stretch(first, last)


def _between(low: Knot, high: Knot, room: float) -> Stretch | None:
    """The same of what goes straight from one knot to the next."""
    has_room = low.bytes <= room, high.bytes <= room
    if not any(has_room):
        return None
    if all(has_room):
        return Stretch(low.batch_size, high.batch_size)
    at = low.batch_size + (room - low.bytes) / (high.bytes - low.bytes) * (high.batch_size - low.batch_size)
    if has_room[0]:
        return Stretch(low.batch_size, min(math.floor(at), high.batch_size - 1))
    return Stretch(max(math.ceil(at), low.batch_size + 1), high.batch_size)
