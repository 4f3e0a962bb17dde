"""Bytes alive at a step's peak as a function of the batch: asked both ways round."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations, pairwise

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

    def largest_within(self, room: float) -> int | None:
        """The largest batch whose peak is no more than that; 0: none; None: there is no end."""
        if room < 0:
            return 0
        beyond = _largest_by_lines(self._beyond(), room)
        if not self.knots or beyond is None:
            return beyond
        if beyond > self.knots[-1].batch_size and self.knots[-1].bytes <= room:
            return beyond
        return _largest_by_knots(self.knots, room)

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


def _largest_by_lines(lines: tuple[Affine, ...], room: float) -> int | None:
    return _least(_crossing(line, room) for line in lines)


def _largest_by_knots(knots: tuple[Knot, ...], room: float) -> int:
    """No larger than the last knot. Kernels may take less at a larger batch: the last stretch that has room counts."""
    for place in range(len(knots) - 1, 0, -1):
        if knots[place].bytes <= room:
            return knots[place].batch_size
        if knots[place - 1].bytes <= room:  # at this knot, however the line's floats are rounded
            return max(_crossing(_line(knots, place), room) or 0, knots[place - 1].batch_size)
    return 0


def _crossing(line: Affine, room: float) -> int | None:
    """The largest batch at which the line is within; None: it never leaves."""
    if line.at(1) > room and line.per_sample >= 0:
        return 0
    return max(math.floor((room - line.constant) / line.per_sample), 0) if line.per_sample > 0 else None


def _least(sizes: Iterable[int | None]) -> int | None:
    return min((size for size in sizes if size is not None), default=None)
