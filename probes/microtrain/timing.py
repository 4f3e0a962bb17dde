"""When samples have settled, and how well they fix a median: pure arithmetic over block times in time order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, median

from probes.measurement import Timing

MIN_SAMPLES = 3  # fewer say nothing about spread
# A drift below this share of the step changes no decision.
TOLERATED_DRIFT = 0.03
# A normal deviation is 1.4826 median absolute deviations; a median's standard error is 1.2533 deviations / sqrt(n).
MEDIAN_ERROR_PER_DEVIATION = 1.4826 * 1.2533


def steady_tail(samples: Sequence[float]) -> tuple[list[float], bool]:
    """What is left when the leading samples that do not belong are dropped, and whether that has settled.

    At most a third is dropped: what drifts for longer than that has not settled, and the last two thirds are
    returned with False. Fewer than three samples never count as settled.
    """
    most = len(samples) // 3
    for dropped in range(most + 1):
        tail = list(samples[dropped:])
        if len(tail) < MIN_SAMPLES:
            break
        if not starts_high(tail) and not drifts(tail):
            return tail, True
    return list(samples[most:]), False


def starts_high(samples: Sequence[float]) -> bool:
    """The first sample stands out above the others: something was still warming up."""
    rest = sorted(samples[1:])
    middle = median(rest)
    if len(rest) < MIN_SAMPLES:
        return samples[0] > 1.5 * rest[-1]  # two samples say little about what is usual
    return samples[0] > rest[-1] and samples[0] - middle > max(TOLERATED_DRIFT * middle, 6 * deviation(rest))


def drifts(samples: Sequence[float]) -> bool:
    """The second half differs from the first by more than three standard errors and by more than tolerated."""
    half = len(samples) // 2
    first, second = samples[:half], samples[-half:]
    if half < MIN_SAMPLES:
        return _is_monotone(samples) and abs(samples[-1] - samples[0]) > 2 * TOLERATED_DRIFT * median(samples)
    difference = abs(median(first) - median(second))
    error = MEDIAN_ERROR_PER_DEVIATION * roughness(samples) * math.sqrt(2 / half)
    return difference > max(TOLERATED_DRIFT * median(samples), 3 * error)


def deviation(samples: Sequence[float]) -> float:
    """Median absolute deviation, in the samples' unit."""
    middle = median(samples)
    return median(abs(sample - middle) for sample in samples)


def roughness(samples: Sequence[float]) -> float:
    """The deviation that neighbours in time show: a drift adds nothing to it, as it would to the samples' own."""
    return deviation([after - before for before, after in pairwise(samples)]) / math.sqrt(2)


def median_error(samples: Sequence[float]) -> float:
    """Standard error of the median, from the median absolute deviation (exact for normal samples)."""
    return MEDIAN_ERROR_PER_DEVIATION * deviation(samples) / math.sqrt(len(samples))


def relative_error(samples: Sequence[float]) -> float:
    """Half the width of the median's 95 % interval, as a share of the median; infinite below MIN_SAMPLES."""
    if len(samples) < MIN_SAMPLES:
        return math.inf
    middle = median(samples)
    return 1.96 * median_error(samples) / middle if middle > 0 else math.inf


def relative_spread(timing: Timing) -> float:
    """From the 10th to the 90th percentile, as a share of the median."""
    return (timing.high - timing.low) / timing.median if timing.median > 0 else 0.0


def central_mean(samples: Sequence[float]) -> float:
    """Without a fifth of them at either end: steps that find fresh pages now and then take one of a few times, of which
    a median would tell one. Raises ValueError without samples."""
    if not samples:
        raise ValueError("a mean needs at least one sample")
    dropped = len(samples) // 5
    return fmean(sorted(samples)[dropped : len(samples) - dropped])


def significant(value: float, digits: int = 5) -> float:
    """Rounded to what a clock can tell, so that documents stay small."""
    return float(f"{value:.{digits}g}")


def _is_monotone(samples: Sequence[float]) -> bool:
    pairs = list(pairwise(samples))
    return all(a > b for a, b in pairs) or all(a < b for a, b in pairs)
