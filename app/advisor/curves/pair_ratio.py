"""How much quicker one plan is than another over the batch, by all that was measured of the two and what is predicted.

A line through what two plans took at single batches crosses another where either met a slow moment. What their ratio
is off by at one batch it is off by in part at the next, so that each batch that ran says something of all: a Gaussian
process of that error, in the batch's logarithm (Rasmussen and Williams, 2006, "Gaussian Processes for Machine
Learning", chapter 2), and of what was measured an error with wide tails, as one in some met a slow moment (Student's t,
by weighing anew; Lange, Little and Taylor, 1989, "Robust Statistical Modeling Using the t Distribution").
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import NamedTuple

from app.advisor.numerics import NDArray, np
from app.advisor.time_model.fitting import ratio_spread
from app.advisor.time_model.intervals import Z, between_processes, half_width
from app.advisor.time_model.measured import HALF_CARRIED_OCTAVES
from app.advisor.time_model.step_estimate import at_one_time
from app.advisor.time_model.step_time import PlanTime

Numbers = NDArray[np.float64]

# What the ratio of two plans differs by between one measurement and the next, beside what their samples tell: a
# standard deviation, of plans with as many threads and with other numbers of them. Chosen with what is below by three
# runs of benchmarks.crossovers on two processors, with one process's times at a few batches for what `quick` measures
# (docs/decisions/0017).
BETWEEN_TURNS, BETWEEN_TURNS_OF_THREADS = 0.03, 0.08
# So many times as long a step takes in a slow moment that nothing shows (docs/estimates.md, "Crossovers"), and more.
SLOW_MOMENT = 2.0
# So many times what is usual at the batches that ran.
APART = 3.0
# Fewer readings do not tell which of them met a slow moment.
ENOUGH = 3
# Degrees of freedom: the smaller, the less a reading counts that lies apart. Rounds of weighing anew.
DEGREES, ROUNDS = 3.0, 8


class _Reading(NamedTuple):
    """Of both plans. off: the logarithm of their ratio, measured over predicted. noise: of that, a standard
    deviation."""

    batch_size: int
    off: float
    noise: float


@dataclass(frozen=True, slots=True)
class PairRatio:
    """Of a step of the first plan over one of the second. prior: standard deviation of what the predicted ratio's
    logarithm is off by, where nothing was measured. ran: the batches at which both did, octaves: their logarithms;
    weights: what their errors count; inverse: of their covariance; explained_away: what is left of each reading that
    counts for little, with no others beside it that bear that out."""

    first: PlanTime
    second: PlanTime
    data: str
    prior: float
    ran: tuple[int, ...]
    octaves: Numbers
    weights: Numbers
    inverse: Numbers
    explained_away: Numbers
    _told: dict[int, float] = field(default_factory=dict)

    def log_ratio(self, batch_size: int) -> float:
        """Positive where the second is quicker."""
        if batch_size not in self._told:
            foretold = _foretold(self.first, self.second, batch_size, self.data)
            self._told[batch_size] = foretold + float(self._alike(batch_size) @ self.weights)
        return self._told[batch_size]

    def spread(self, batch_size: int) -> float:
        """That four in five are within."""
        alike = self._alike(batch_size)
        known = Z * math.sqrt(max(self.prior**2 - float(alike @ self.inverse @ alike), 0.0))
        return math.hypot(known, float(np.max(alike / self.prior**2 * self.explained_away)))

    def sign(self, batch_size: int) -> int:
        """1 where the second is certain to be quicker, -1 where the first is, 0 where nobody can tell."""
        log_ratio, spread = self.log_ratio(batch_size), self.spread(batch_size)
        return (log_ratio > spread) - (log_ratio < -spread)

    def _alike(self, batch_size: int) -> Numbers:
        return _covariance(self.prior, self.octaves - math.log2(batch_size))


def ratio_of(first: PlanTime, second: PlanTime, data: str) -> PairRatio | None:
    """None of plans on devices, whose steps lie on no such line, where both did not run at some batch, nothing is
    predicted, or what was measured is told as others make it."""
    if not (first.plan.is_cpu and second.plan.is_cpu) or first.predicted is None or second.predicted is None:
        return None
    prior = ratio_spread(first.predicted.model.fit.left_out, second.predicted.model.fit.left_out)
    readings = _readings(first, second, data)
    if prior is None or not readings or not all(math.isfinite(reading.off) for reading in readings):
        return None
    prior, ran = _widened(prior / Z, readings), tuple(reading.batch_size for reading in readings)
    octaves, off = np.log2(np.array(ran, dtype=np.float64)), np.array([reading.off for reading in readings])
    covariance = _covariance(prior, octaves[:, None] - octaves[None, :])
    weights, inverse = _weighed(readings, covariance)
    left = np.abs(off - covariance @ weights) if len(readings) < ENOUGH else np.zeros(len(readings))
    return PairRatio(first, second, data, prior, ran, octaves, weights, inverse, left)


def _widened(prior: float, readings: Sequence[_Reading]) -> float:
    """What several batches show beyond their noise, where calibrations told less: without what one of them shows beyond
    all others. Of one alone what no slow moment explains."""
    if len(readings) == 1:
        return max(prior, abs(readings[0].off) - math.log(SLOW_MOMENT))
    most = APART * median(abs(each.off) for each in readings)
    return math.sqrt(max(prior**2, fmean(min(abs(each.off), most) ** 2 - each.noise**2 for each in readings)))


def _weighed(readings: Sequence[_Reading], covariance: Numbers) -> tuple[Numbers, Numbers]:
    """What each counts, and the inverse of their covariance."""
    off, noise = (np.array(column) for column in zip(*((each.off, each.noise) for each in readings), strict=True))
    variances = noise**2
    for _ in range(ROUNDS):
        apart = off - covariance @ np.linalg.solve(covariance + np.diag(variances), off)
        variances = noise**2 * (DEGREES + (apart / noise) ** 2) / (DEGREES + 1)
    inverse: Numbers = np.asarray(np.linalg.inv(covariance + np.diag(variances)), dtype=np.float64)
    return np.asarray(inverse @ off, dtype=np.float64), inverse


def _readings(first: PlanTime, second: PlanTime, data: str) -> list[_Reading]:
    ours, theirs = first.lasting, second.lasting
    if ours is None or theirs is None:
        return []
    turns = BETWEEN_TURNS if first.plan.threads == second.plan.threads else BETWEEN_TURNS_OF_THREADS
    found = []
    for size in sorted(set(ours.own_batch_sizes) & set(theirs.own_batch_sizes)):
        one, other = ours.measured(size), theirs.measured(size)
        if (
            one is None
            or other is None
            or _is_told_otherwise(first, size, data)
            or _is_told_otherwise(second, size, data)
        ):
            return []
        off = math.log(one.median) - math.log(other.median) - _foretold(first, second, size, data)
        apart = 0.0
        if not at_one_time(ours.rows[size].measured_at, theirs.rows[size].measured_at):
            apart = math.hypot(between_processes(first.plan), between_processes(second.plan))
        noise = math.hypot(half_width(one) / Z, half_width(other) / Z, apart / Z, turns)
        found.append(_Reading(size, off, noise))
    return found


def _is_told_otherwise(time: PlanTime, batch_size: int, data: str) -> bool:
    """As others who hold cores now make it, or without those who held them."""
    told = time.at(batch_size, data)
    return told is None or not math.isclose(told.slowed, 1.0)


def _foretold(first: PlanTime, second: PlanTime, batch_size: int, data: str) -> float:
    """The logarithm of the predicted ratio."""
    assert first.predicted is not None
    assert second.predicted is not None
    ours, theirs = first.predicted.at(batch_size, data), second.predicted.at(batch_size, data)
    return math.nan if ours is None or theirs is None else math.log(ours.median) - math.log(theirs.median)


def _covariance(prior: float, octaves: Numbers) -> Numbers:
    """As much of it is left as of a time's error that is carried to another batch (carried_share)."""
    return np.asarray(prior**2 * 0.5 ** (np.abs(octaves) / HALF_CARRIED_OCTAVES))
