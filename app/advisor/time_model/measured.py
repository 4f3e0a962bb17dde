"""What measurements of this very model say: at the batches that ran, and between them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from app.advisor.crowding import Crowd
from app.advisor.recommendation import Interval
from app.advisor.time_model.intervals import interval_of_timing, scale, widen
from probes.measurement import Measurement
from probes.workload.description import Plan

# How far beyond the batches that ran a straight line may be drawn where nothing is predicted, and what it missed by:
# twice the probed range was good to 6 % on convolutional networks, sixty-four times missed by half, as algorithms
# change with the batch. Where something is, the nearest measurement is carried along that: up to twice the range it was
# 4.1 and 11.9 % off (median, 90th percentile; the line 4.2 and 13.7; truth of four runs of benchmarks.crossovers).
REACH = 2.0
BEYOND = 0.06
BETWEEN = 0.03
# What a time is off by that was measured on slow cores alone and reckoned back (docs/decisions/0013): four in five.
RECKONED = 0.12


@dataclass
class MeasuredTime:
    """Step times of one plan by batch size, all in one data mode."""

    rows: dict[int, Measurement]
    data: str
    _intervals: dict[int, Interval] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._intervals = {
            batch: widen(interval_of_timing(row.step), RECKONED if row.is_reckoned else 0.0)
            for batch, row in sorted(self.rows.items())
            if row.step is not None
        }

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        return tuple(self._intervals)

    def measured(self, batch_size: int) -> Interval | None:
        """What this very batch took."""
        return self._intervals.get(batch_size)

    def probed(self, batch_size: int) -> Interval | None:
        """On the line through the two measured batches on either side, or the two nearest; None when too far out."""
        sizes = self.batch_sizes
        if len(sizes) < 2 or not sizes[0] / REACH <= batch_size <= sizes[-1] * REACH:
            return None
        left, right = _neighbours(sizes, batch_size)
        before, after = self._intervals[left], self._intervals[right]
        share = (batch_size - left) / (right - left)
        middle = before.median + share * (after.median - before.median)
        inside = 0.0 <= share <= 1.0
        if not inside:
            # Noise can tip the line: a smaller batch takes at least its share, a larger one no less than this one.
            middle = max(middle, before.median * batch_size / left if share < 0 else after.median)
        below = max(before.median / before.low, after.median / after.low)
        above = max(before.high / before.median, after.high / after.median)
        return widen(Interval(middle, middle / below, middle * above), BETWEEN if inside else BEYOND)

    def between(self, batch_size: int, curve: Callable[[int], Interval | None]) -> Interval | None:
        """Along the curve of a prediction, put right at the measured batches on either side: for a device, whose steps
        are flat as long as issuing them takes longer than computing. None where the curve knows one of them not."""
        line = self.probed(batch_size)
        left, right = _neighbours(self.batch_sizes, batch_size)
        told = [curve(size) for size in (left, batch_size, right)]
        if line is None or told[0] is None or told[1] is None or told[2] is None:
            return None
        share = math.log(batch_size / left) / math.log(right / left)
        before = math.log(self._intervals[left].median / told[0].median)
        after = math.log(self._intervals[right].median / told[2].median)
        return scale(line, told[1].median * math.exp(before + share * (after - before)) / line.median)

    def is_between(self, batch_size: int) -> bool:
        """There is a measured batch on either side."""
        return self.batch_sizes[0] <= batch_size <= self.batch_sizes[-1]

    def nearest(self, batch_size: int) -> int:
        """The measured batch closest in ratio."""
        return min(self.batch_sizes, key=lambda size: max(size / batch_size, batch_size / size))


def by_plan(measurements: Iterable[Measurement]) -> dict[tuple[object, ...], list[Measurement]]:
    """Each plan's by its key, in their order: one pass for all that is asked of them."""
    found: dict[tuple[object, ...], list[Measurement]] = {}
    for row in measurements:
        found.setdefault(row.plan.key, []).append(row)
    return found


def measured_times(
    measurements: Iterable[Measurement], plan: Plan, data: str, crowd: Crowd | None = None, *, is_free: bool = False
) -> MeasuredTime | None:
    """The plan's successful measurements; None without any.

    On the CPU data is where it is needed whatever the mode. On a device those of the mode asked for are taken, or
    else of the mode with the most batches. A later measurement of the same batch replaces an earlier one, unless it
    tells of others alone, who have left, and the earlier one does not; or it was reckoned from slow cores alone, which
    nobody made slow who is here now, and the earlier one met calm ones. What ran one step alone is not among them
    (first_steps). crowd: who holds cores now. is_free: it is known that nobody else computes on the plan's device now.
    """

    def tells_of_who_left(row: Measurement) -> bool:
        return (is_free and row.met_others) or (crowd is not None and crowd.relief_of(row) > 0)

    def tells_less(row: Measurement, before: Measurement) -> bool:
        if tells_of_who_left(row):
            return not tells_of_who_left(before)
        is_still_so = crowd is not None and crowd.still_met(plan, row.others_cores) > 0
        return row.is_reckoned and before.slowdown is not None and not is_still_so

    by_data: dict[str, dict[int, Measurement]] = {}
    key = plan.key
    for row in measurements:
        if row.plan.key == key and _took(row) > 0 and not row.is_first_step:
            rows = by_data.setdefault(data if plan.is_cpu else row.data, {})
            before = rows.get(row.batch_size)
            if before is None or not tells_less(row, before):
                rows[row.batch_size] = row
    if not by_data:
        return None
    chosen = data if data in by_data else max(by_data, key=lambda mode: len(by_data[mode]))
    return MeasuredTime(by_data[chosen], chosen)


class FirstStep(NamedTuple):
    """seconds: it took. others_cores: that others held meanwhile; None: not known."""

    seconds: float
    others_cores: float | None = None


def first_steps(rows: Iterable[Measurement]) -> dict[int, FirstStep]:
    """By batch size, a plan's first step where it ran no other, then or later: how it was fed is the least of it. rows:
    the plan's."""
    begun: dict[int, FirstStep] = {}
    for row in rows:
        if _took(row) > 0:
            begun.pop(row.batch_size, None)
            if row.is_first_step:
                begun[row.batch_size] = FirstStep(_took(row), row.others_cores)
    return begun


def _took(row: Measurement) -> float:
    return row.step.median if row.outcome == "ok" and row.step is not None else 0.0


def _neighbours(sizes: Sequence[int], batch_size: int) -> tuple[int, int]:
    for left, right in itertools.pairwise(sizes):
        if batch_size <= right:
            return left, right
    return sizes[-2], sizes[-1]
