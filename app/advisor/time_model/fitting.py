"""Context factors: how much more a class of work costs inside a step than alone, fitted to whole networks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import mul
from statistics import fmean
from typing import NamedTuple

from app.advisor.time_model.intervals import CONFIDENCE, Z

# How firmly the factors are held to their priors, in networks: a class that no network exercises keeps its prior.
PRIOR_STRENGTH = 0.05
# Operations that were timed inside steps need next to no correction: a calibration has time for a few whole steps of
# each network, which run cold and would ask for some.
# What a page fault takes in a step, its caches being cold after it, is not what it takes alone: a sixth more in fp32 in
# training, a tenth less in inference.
CONTEXT_HOLD = (50.0, 50.0, 50.0, 50.0, 1.0)
# How much of a spread is that of networks of which nothing was timed, on the way to it from that of networks that were
# (logarithms): at three tenths the intervals of three calibrations held 74 to 81 % of the steps of 46 other models, at
# four tenths 79 to 82 % (docs/decisions/0005).
UNSEEN = 0.4
# Sweeps of the descent at most, and the change of a factor below which it has arrived.
SWEEPS, SETTLED = 60, 1e-4
# How far a factor may be from its prior. Networks measured while others held the cores fit anything, even that
# computing costs nothing; a plan would then be named for being free.
LEAST_FACTOR, MOST_FACTOR = 0.5, 8.0
# Rounds of re-weighing, and the error (a logarithm) up to which a network counts in full.
REWEIGHTINGS, TOLERATED_ERROR = 4, 0.15
# A little below what a first fit on 38 networks missed by at the 90th percentile (12 %), since operations are timed
# inside steps (docs/decisions/0003-how-instant-estimates.md): fewer networks cannot show that they do better.
LEAST_SPREAD = 0.1
# The ratio of two predictions is known no better than this, however well few networks agree.
LEAST_RATIO_SPREAD = 0.06
# An operation that no other network has is priced at next to nothing, and its network is then off by a factor of
# hundreds: a network counts with this many times the usual error at most.
ABSURD = 3.0
# Without networks to fit to, the sum of operations alone is 0.34 to 0.80 of a step: a factor of two either way.
UNFITTED_SPREAD = 0.7


Step = tuple[str, int]  # a network and a batch size


@dataclass(frozen=True, slots=True)
class Fit:
    """factors: one a class of work. spread: relative error in four of five cases, from networks left out.
    left_out: each network's estimate over its measurement when it was not used, as a logarithm, at each batch size."""

    factors: tuple[float, ...]
    spread: float
    left_out: dict[Step, float]


class Row(NamedTuple):
    """A network's step. shares: seconds of each class divided by the measured seconds of the step, so that a perfect
    row sums to 1 when multiplied with the factors."""

    network: str
    shares: Sequence[float]
    batch_size: int = 1

    @property
    def step(self) -> Step:
        return self.network, self.batch_size


def fit_factors(
    rows: Sequence[Row],
    priors: Sequence[float],
    left_out_rows: Sequence[Row] | None = None,
    hold: float | Sequence[float] = PRIOR_STRENGTH,
) -> Fit:
    """Least squares of the relative errors, held gently to the priors and within bounds around them.

    Rows of one network are left out together. left_out_rows: the same rows as they
    are when the prices know nothing of their network; None: prices do not depend on networks. The networks are there
    for being unlike each other, and what a user asks about is like some of them: it is less known than a network that
    was timed and better than one of which nothing was (see UNSEEN). hold: how firmly the factors are held to the
    priors, in networks; one number, or one a factor.
    """
    factors = solve([row.shares for row in rows], priors, hold)
    names = dict.fromkeys(row.network for row in rows)
    if len(names) < 3:
        return Fit(factors, UNFITTED_SPREAD, {})
    left_out: dict[Step, float] = {}
    errors: list[float] = []
    for name in names:
        others = solve([row.shares for row in rows if row.network != name], priors, hold)
        mine = [row for row in left_out_rows or rows if row.network == name]
        missed = [_log_error(others, row.shares) for row in mine]
        left_out |= zip([row.step for row in mine], missed, strict=True)
        errors += missed
    spread = spread_of(errors, len(names))
    if left_out_rows is not None:
        known = spread_of([_log_error(factors, row.shares) for row in rows], len(names))
        spread = spread**UNSEEN * known ** (1 - UNSEEN)
    return Fit(factors, min(max(spread, LEAST_SPREAD), 1.5), left_out)


def spread_of(errors: Sequence[float], networks: int) -> float:
    """Below which four errors of five lie: the larger ones are outliers that a normal distribution would spread over
    all. Few networks know it badly: Student's t in place of the normal, to first order in 1/n."""
    few = 1.0 + 1.5 / max(networks - 1, 1)
    ordered = sorted(abs(error) for error in errors)
    return few * ordered[min(math.ceil(CONFIDENCE * len(ordered)), len(ordered)) - 1]


def ratio_spread(one: Mapping[Step, float], other: Mapping[Step, float]) -> float | None:
    """How far the ratio of two plans' estimates is off in four of five cases, from both plans' errors on networks left
    out, at batch sizes that both ran; None with fewer than three networks in common.

    A network whose operations are priced too low is too low under every plan; which plan is faster does not depend
    on it. So the ratio is known better than either time.
    """
    found: dict[str, list[float]] = {}
    for step in one.keys() & other.keys():
        found.setdefault(step[0], []).append(one[step] - other[step])
    if len(found) < 3:
        return None
    differences = [abs(fmean(mine)) for mine in found.values()]
    usual = spread_of(differences, len(found))
    square = sum(min(difference, ABSURD * usual) ** 2 for difference in differences) / len(found)
    return max(Z * math.sqrt(square), LEAST_RATIO_SPREAD)


def _log_error(factors: Sequence[float], row: Sequence[float]) -> float:
    total = sum(factor * share for factor, share in zip(factors, row, strict=True))
    return math.log(max(total, 1e-3))


def solve(
    rows: Sequence[Sequence[float]], priors: Sequence[float], hold: float | Sequence[float] = PRIOR_STRENGTH
) -> tuple[float, ...]:
    """Factors with which each row adds up to 1 as nearly as can be, every factor near its prior and gently held to it.
    Without rows: the priors.

    A row that stays far off is weighed less the further off it is (Huber's weights, in logarithms): one network that
    was measured while the machine was busy must not bend the factors of all others.
    """
    weights = [1.0] * len(rows)
    factors = tuple(priors)
    holds = (hold,) * len(priors) if isinstance(hold, float) else hold
    for _ in range(REWEIGHTINGS):
        factors = _solve_weighted(rows, weights, priors, holds)
        weights = [min(1.0, TOLERATED_ERROR / max(abs(_log_error(factors, row)), 1e-9)) for row in rows]
    return factors


def _solve_weighted(
    rows: Sequence[Sequence[float]],
    weights: Sequence[float],
    priors: Sequence[float],
    holds: Sequence[float],
) -> tuple[float, ...]:
    """Coordinate descent on the normal equations."""
    size = len(priors)
    weighed = [[weight * part for part in row] for weight, row in zip(weights, rows, strict=True)]
    gram = [
        [sum(w[i] * row[j] for w, row in zip(weighed, rows, strict=True)) for j in range(size)] for i in range(size)
    ]
    right = [sum(w[i] for w in weighed) for i in range(size)]
    for i, (prior, strength) in enumerate(zip(priors, holds, strict=True)):
        hold = strength / (prior * prior)
        gram[i][i] += hold
        right[i] += hold * prior
    factors = list(priors)
    for _ in range(SWEEPS):
        moved = 0.0
        for i, row in enumerate(gram):
            # What is left of the i-th equation, this factor's own share put back.
            rest = right[i] - sum(map(mul, row, factors)) + row[i] * factors[i]
            factor = min(max(rest / row[i], LEAST_FACTOR * priors[i]), MOST_FACTOR * priors[i])
            moved = max(moved, abs(factor - factors[i]))
            factors[i] = factor
        if moved < SETTLED:
            break
    return tuple(factors)
