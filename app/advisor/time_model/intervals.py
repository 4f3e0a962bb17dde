"""Intervals of times: of a measured median, and of a guess with a known spread.

An interval holds the truth in about four cases of five. Times are positive and their errors are ratios, so spreads
are in logarithms: a spread of 0.1 is 10 % either way.
"""

from __future__ import annotations

import math
from statistics import median

from app.advisor.recommendation import Interval
from probes.measurement import Timing
from probes.workload.description import Plan

CONFIDENCE = 0.8
Z = 1.2816  # of the normal distribution: as many lie within this many standard deviations

# A process that measures the same plan again differs by a percent or two (memory layout, clock, neighbours), however
# little its own samples spread; the long interleaved runs of benchmarks.decisions show it.
BETWEEN_RUNS = 0.01
# What a later process takes for the same step, heap and neighbours being others, on one thread and on more: with these,
# 78 to 93 % of `quick`'s intervals hold the truth in each of thirteen long runs of benchmarks.estimates, 84 in the
# middle one, and 63 to 82 % in three that neighbours disturbed, on shared virtual machines with two cores of an EPYC
# (Zen 4 and 5, 2026-11-23 to 28; python -m benchmarks.interval_widths). Plans of one measurement share it.
BETWEEN_PROCESSES, BETWEEN_PROCESSES_OF_THREADS = 0.055, 0.085
# On a device four in five of 140 steps that issuing limits differed by no more than this between two processes on one
# host (an H200's; of 175 between two hosts with an H100 by no more than 0.27), and of steps that computing limits by
# 0.05 (benchmarks/results).
BETWEEN_PROCESSES_OF_DEVICES, BETWEEN_PROCESSES_THAT_COMPUTE = 0.15, 0.05
# Two cards that are alike have not been at hand in one machine: what one takes against the other is taken to differ by
# as much again, which is 0.21 together, between the 0.15 of one host and the 0.27 of two.
BETWEEN_LIKE_CARDS = BETWEEN_PROCESSES_OF_DEVICES
# One sample says nothing about its own spread.
ONE_SAMPLE = 0.1
# From five samples on their range holds the median with more than 90 % (1 - 2 / 2**5).
ENOUGH_SAMPLES = 5


def between_processes(plan: Plan) -> float:
    """The spread of what processes take for the same step. Several threads meet more of what others do on the
    machine: a step waits for the slowest."""
    if not plan.is_cpu:
        return BETWEEN_PROCESSES_OF_DEVICES
    return BETWEEN_PROCESSES_OF_THREADS if plan.threads != 1 else BETWEEN_PROCESSES


def interval_around(middle: float, spread: float) -> Interval:
    """`middle` with the relative spread (logarithm of a ratio) on either side."""
    return Interval(middle, middle * math.exp(-spread), middle * math.exp(spread))


def scale(interval: Interval, factor: float) -> Interval:
    return Interval(interval.median * factor, interval.low * factor, interval.high * factor)


def widen(interval: Interval, spread: float) -> Interval:
    """The interval with an independent relative error on top: spreads add in quadrature."""
    below = math.hypot(math.log(interval.median / interval.low), spread)
    above = math.hypot(math.log(interval.high / interval.median), spread)
    return Interval(interval.median, interval.median * math.exp(-below), interval.median * math.exp(above))


def narrow(interval: Interval, spread: float) -> Interval:
    """What `widen` made it of."""
    below = math.sqrt(max(math.log(interval.median / interval.low) ** 2 - spread**2, 0.0))
    above = math.sqrt(max(math.log(interval.high / interval.median) ** 2 - spread**2, 0.0))
    return Interval(interval.median, interval.median * math.exp(-below), interval.median * math.exp(above))


def half_width(interval: Interval) -> float:
    """The relative spread of an interval that is as wide, with equal sides."""
    return math.log(interval.high / interval.low) / 2


def bounded(interval: Interval, low: float, high: float) -> Interval:
    """What of it lies between these; where nothing does, the nearer of them."""

    def inside(seconds: float) -> float:
        return min(max(seconds, low), high)

    return Interval(inside(interval.median), inside(interval.low), inside(interval.high))


def shift(interval: Interval, seconds: float) -> Interval:
    """A part of known length added (or taken away); the relative spread is kept, the time stays positive."""
    moved = max(interval.median + seconds, interval.median * 0.01)
    return scale(interval, moved / interval.median)


def deviation(interval: Interval) -> float:
    """Standard deviation of the logarithm, when the interval is taken as 80 % of a lognormal distribution."""
    return math.log(interval.high / interval.low) / (2 * Z) if interval.low > 0 else math.inf


def apart(faster: Interval, slower: Interval) -> bool:
    """The first is faster, and the intervals do not touch."""
    return faster.high < slower.low


def interval_of_timing(timing: Timing) -> Interval:
    """Where the median of a measurement lies: order statistics of its samples, widened by its drift.

    The interval from the k-th smallest to the k-th largest of n independent samples holds the median with
    1 - 2 * P(Binomial(n, 1/2) < k); no distribution is assumed (David and Nagaraja, Order Statistics, 7.1). Samples
    that drift are not independent: half of the difference between the halves is added.
    """
    samples = [sample for sample in timing.samples if sample > 0 and math.isfinite(sample)]
    if len(samples) < 2:
        spread = math.log(timing.high / timing.low) / 2 if 0 < timing.low < timing.high else ONE_SAMPLE
        return widen(interval_around(timing.median, spread), BETWEEN_RUNS)
    ordered = sorted(samples)
    rank = _median_rank(len(ordered))
    few = ONE_SAMPLE / len(ordered) if len(ordered) < ENOUGH_SAMPLES else 0.0
    range_of_median = Interval(median(ordered), ordered[rank], ordered[-1 - rank])
    return widen(range_of_median, math.hypot(BETWEEN_RUNS, few, _drift(samples) / 2))


def _median_rank(count: int) -> int:
    """How many samples to drop at either end and still hold the median with 80 %; 0 when there are too few."""
    if count > 200:  # the binomial is normal by then, and 2**count would outgrow a float later
        return math.floor(count / 2 - Z * math.sqrt(count) / 2) - 1
    below = 0.0
    for rank in range(count // 2):
        below += math.comb(count, rank) / 2.0**count
        if 2 * below > 1 - CONFIDENCE:
            return max(rank - 1, 0) if rank else 0
    return max(count // 2 - 1, 0)


def _drift(samples: list[float]) -> float:
    """Logarithm of the ratio between the medians of the second half and the first; 0 with fewer than four."""
    if len(samples) < 4:
        return 0.0
    half = len(samples) // 2
    return abs(math.log(median(samples[-half:]) / median(samples[:half])))
