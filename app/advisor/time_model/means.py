"""Means of what several calibrations measured of the same."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from statistics import fmean
from typing import TypeVar

from probes.measurement import Timing

T = TypeVar("T")


def grouped(calibrations: Iterable[Iterable[T]], key: Callable[[T], Hashable]) -> list[list[T]]:
    """What is the same in several calibrations, newest first."""
    groups: dict[Hashable, list[T]] = {}
    for rows in calibrations:
        for row in rows:
            groups.setdefault(key(row), []).append(row)
    return list(groups.values())


def mean_timing(rows: Sequence[Timing]) -> Timing:
    """samples: each calibration's median."""
    if len(rows) == 1:
        return rows[0]
    medians = tuple(row.median for row in rows)
    return Timing(mean(medians), mean([row.low for row in rows]), mean([row.high for row in rows]), medians)


def mean(values: Sequence[float]) -> float:
    """Geometric: a state that makes all steps twice as long counts as much as one that makes them half as long."""
    return rounded(math.exp(fmean(math.log(value) for value in values)))


def rounded(value: float) -> float:
    """To the figures that a calibration's times have."""
    return float(f"{value:.4g}")
