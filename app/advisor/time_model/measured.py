"""What measurements of this very model say: at the batches that ran, and between them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from app.advisor.crowding import Crowd
from app.advisor.recommendation import Interval
from app.advisor.time_model.intervals import interval_of_timing, widen
from app.advisor.time_model.single_steps import is_single, took
from probes.measurement import Measurement
from probes.workload.description import Plan

# How far beyond the batches that ran a straight line may be drawn where nothing is predicted, and what it missed by:
# twice the probed range was good to 6 % on convolutional networks, sixty-four times missed by half, as algorithms
# change with the batch. Where something is, the nearest measurement is carried along that: up to twice the range it was
# 4.1 and 11.9 % off (median, 90th percentile; the line 4.2 and 13.7; truth of four runs of benchmarks.crossovers).
REACH = 2.0
BEYOND = 0.06
# What a time between two measured batches is off by, an octave from the nearer one, where something is predicted and
# where nothing is: four in five, of 64 plans of 11 models on two processors. It grows with the root of the octaves
# (python -m benchmarks.between_batches, docs/decisions/0003).
BETWEEN, ON_A_LINE = 0.075, 0.10
# What a prediction is off by at one batch it is off by in part at another, half of it this many octaves away: carrying
# half was 9 % off at another batch in the median of 124 plans of 31 models (31 % at the 90th percentile), all of it 11
# and 38 %, nothing 12 and 40 % (rows of benchmarks.estimates).
HALF_CARRIED_OCTAVES = 3.0
# What a time is off by that was measured on slow cores alone and reckoned back (docs/decisions/0013): four in five.
RECKONED = 0.12
# Slow cores make hardly a step shorter, and reckoning back takes off no more than 1.35 (probes.microtrain.quiet.calm):
# what took so much less than an earlier measurement disproves it, however calm that seemed.
DISPROVED = 1.4

Foretold = Callable[[int], float | None]  # seconds of a step of this batch


@dataclass
class MeasuredTime:
    """Step times of one plan by batch size, all in one data mode. borrowed: sizes at which not this plan ran, but the
    same one on a card that is like its own (with_borrowed)."""

    rows: dict[int, Measurement]
    data: str
    borrowed: frozenset[int] = frozenset()
    _intervals: dict[int, Interval] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._intervals = {
            batch: widen(interval_of_timing(row.step), RECKONED if row.is_reckoned else 0.0)
            for batch, row in sorted(self.rows.items())
            if row.step is not None
        }

    def without(self, left_out: Callable[[Measurement], bool]) -> MeasuredTime | None:
        """By the rows that are none of these; None without any."""
        rows = {batch: row for batch, row in self.rows.items() if not left_out(row)}
        return MeasuredTime(rows, self.data, self.borrowed) if rows else None

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        return tuple(self._intervals)

    @property
    def own_batch_sizes(self) -> tuple[int, ...]:
        """At which this very plan ran."""
        return tuple(size for size in self.batch_sizes if size not in self.borrowed)

    def is_borrowed(self, batch_size: int) -> bool:
        """What a time at this batch rests on most is not this plan's own."""
        return self.nearest(batch_size) in self.borrowed

    def measured(self, batch_size: int) -> Interval | None:
        """What this very batch took."""
        return self._intervals.get(batch_size)

    def probed(self, batch_size: int, foretold: Foretold | None = None) -> Interval | None:
        """Between the two measured batches on either side, or on the line through the two nearest; None when too far
        out. foretold: what is predicted of any batch; put right at both batches it says how steps bend between them,
        which a line does not know and a prediction not well: the geometric mean of the two is told."""
        sizes = self.batch_sizes
        if len(sizes) < 2 or not sizes[0] / REACH <= batch_size <= sizes[-1] * REACH:
            return None
        left, right = _neighbours(sizes, batch_size)
        before, after = self._intervals[left], self._intervals[right]
        share = (batch_size - left) / (right - left)
        middle, spread = before.median + share * (after.median - before.median), BEYOND
        if 0.0 <= share <= 1.0:
            bent = (
                None if foretold is None else _bent(foretold, (left, before.median), (right, after.median), batch_size)
            )
            middle = middle if bent is None else math.sqrt(middle * bent)
            octaves = math.log2(min(batch_size / left, right / batch_size))
            spread = (ON_A_LINE if bent is None else BETWEEN) * math.sqrt(octaves)
        else:
            # Noise can tip the line: a smaller batch takes at least its share, a larger one no less than this one.
            middle = max(middle, before.median * batch_size / left if share < 0 else after.median)
        below = max(before.median / before.low, after.median / after.low)
        above = max(before.high / before.median, after.high / after.median)
        return widen(Interval(middle, middle / below, middle * above), spread)

    def is_between(self, batch_size: int) -> bool:
        """There is a measured batch on either side."""
        return self.batch_sizes[0] <= batch_size <= self.batch_sizes[-1]

    def reaches(self, batch_size: int) -> bool:
        """There is one on either side, or one within REACH."""
        nearest = self.nearest(batch_size)
        return self.is_between(batch_size) or max(nearest / batch_size, batch_size / nearest) <= REACH

    def nearest(self, batch_size: int) -> int:
        """The measured batch closest in ratio."""
        return min(self.batch_sizes, key=lambda size: max(size / batch_size, batch_size / size))


def carried_share(batch_size: int, measured: int) -> float:
    """The share of what a prediction is off by at the measured batch that it is off by at another."""
    return float(0.5 ** (abs(math.log2(batch_size / measured)) / HALF_CARRIED_OCTAVES))


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
    tells of others alone, who have left, and the earlier one does not; or it is not known to have met calm cores, by
    nobody's fault who is here now, and the earlier one met some, which it does not disprove. What ran one step alone is
    not among them (single_steps). crowd: who holds cores now. is_free: it is known that nobody else computes on the
    plan's device now.
    """

    def tells_of_who_left(row: Measurement) -> bool:
        return (is_free and row.met_others) or (crowd is not None and crowd.relief_of(row) > 0)

    def tells_less(row: Measurement, before: Measurement) -> bool:
        if disproves(row, before):
            return False
        if row.is_unsteady and not before.is_unsteady and disproves(before, row):
            return True
        if tells_of_who_left(row):
            return not tells_of_who_left(before)
        is_still_so = crowd is not None and crowd.still_met(plan, row.others_cores) > 0
        met_no_calm = row.slowdown is None or (crowd is not None and crowd.tells_of_others(row))
        met_some = before.slowdown is not None if crowd is None else crowd.met_calm_cores(before)
        return met_no_calm and met_some and not is_still_so

    by_data: dict[str, dict[int, Measurement]] = {}
    key = plan.key
    for row in measurements:
        if row.plan.key == key and took(row) > 0 and not is_single(row, crowd):
            rows = by_data.setdefault(data if plan.is_cpu else row.data, {})
            before = rows.get(row.batch_size)
            if before is None or not tells_less(row, before):
                rows[row.batch_size] = row
    if not by_data:
        return None
    chosen = data if data in by_data else max(by_data, key=lambda mode: len(by_data[mode]))
    return MeasuredTime(by_data[chosen], chosen)


def disproves(later: Measurement, before: Measurement) -> bool:
    """Of the same plan and batch, where both ran: the earlier one met what nobody saw."""
    return DISPROVED * took(later) < took(before)


def with_borrowed(own: MeasuredTime | None, alike: MeasuredTime | None) -> MeasuredTime | None:
    """With what the same plan took on cards that are like its own, fed as its own steps were, at batches of which it
    has none itself. None where neither ran."""
    if alike is None or (own is not None and own.data != alike.data):
        return own
    rows = {} if own is None else own.rows
    return MeasuredTime({**alike.rows, **rows}, alike.data, frozenset(alike.rows.keys() - rows.keys()))


def _bent(foretold: Foretold, left: tuple[int, float], right: tuple[int, float], batch_size: int) -> float | None:
    """Seconds along what is foretold, put right at both batches: what it is off by changes from the one to the other
    with the batch's logarithm. left, right: a batch and what its step took."""
    at_left, there, at_right = foretold(left[0]), foretold(batch_size), foretold(right[0])
    if at_left is None or there is None or at_right is None:
        return None
    share = math.log(batch_size / left[0]) / math.log(right[0] / left[0])
    return there * math.pow(left[1] / at_left, 1 - share) * math.pow(right[1] / at_right, share)


def _neighbours(sizes: Sequence[int], batch_size: int) -> tuple[int, int]:
    for left, right in itertools.pairwise(sizes):
        if batch_size <= right:
            return left, right
    return sizes[-2], sizes[-1]
