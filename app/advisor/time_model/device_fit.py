"""Context factors of a device: a step is the longer of what the host issues and what the device computes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul
from statistics import median
from typing import NamedTuple

from app.advisor.time_model.features import CONTEXT_PRIORS, PRIORS, Features
from app.advisor.time_model.fitting import UNFITTED_SPREAD, Fit, Step, solve, spread_of
from app.advisor.time_model.intervals import BETWEEN_PROCESSES_OF_DEVICES

# Networks on a device were not fitted in numbers yet; kernels' efficiency in context is known no better than this.
LEAST_DEVICE_SPREAD = 0.15


@dataclass(frozen=True, slots=True)
class NetworkRow:
    """A whole network: its measured step, and its classes of work in seconds."""

    name: str
    seconds: float
    parts: Features
    batch_size: int = 1


class Clocks(NamedTuple):
    """Of a step on a device, in seconds: the host's and the device's, which run side by side, and what shows beside
    them. From pinned memory the next batch is copied meanwhile, and counts as the device's where it takes longer."""

    host: float
    device: float
    beside: float

    @property
    def step(self) -> float:
        return max(self.host, self.device) + self.beside


def host_and_device(parts: Features) -> tuple[float, float]:
    """Seconds that the host issues for, and that the device computes for; the optimizer's are nearly all issuing."""
    heavy, light, dispatch, optimizer, _ = parts
    return dispatch + optimizer, heavy + light


def weighted(parts: Features, factors: Sequence[float]) -> Features:
    return tuple(map(mul, parts, factors))


def fit_device(rows: Sequence[NetworkRow], left_out_rows: Sequence[NetworkRow] | None = None) -> Fit:
    """Factors of each side from the networks that it limits; errors from networks left out. left_out_rows: the same as
    they are when the prices know nothing of their network; without: prices do not depend on networks, and light work
    takes longer in a step than alone."""
    priors = PRIORS if left_out_rows is None else CONTEXT_PRIORS
    names = dict.fromkeys(row.name for row in rows)
    factors = _factors(rows, priors)
    if len(names) < 3:
        return Fit(factors, UNFITTED_SPREAD, {})
    left_out: dict[Step, float] = {}
    errors: list[float] = []
    for name in names:
        others = _factors([row for row in rows if row.name != name], priors)
        mine = [row for row in left_out_rows or rows if row.name == name]
        missed = [math.log(_step(row, others) / row.seconds) for row in mine]
        left_out |= zip([(name, row.batch_size) for row in mine], missed, strict=True)
        errors += missed
    known = max(spread_of(errors, len(names)), LEAST_DEVICE_SPREAD)  # of steps in this process, and in this hour
    return Fit(factors, min(math.hypot(known, BETWEEN_PROCESSES_OF_DEVICES), 1.5), left_out)


def _step(row: NetworkRow, factors: Sequence[float]) -> float:
    return max(*host_and_device(weighted(row.parts, factors)), 1e-12)


def _factors(rows: Sequence[NetworkRow], priors: Features) -> tuple[float, ...]:
    """Factors in the order of features.CLASSES. Which side limits a network is judged twice: with the priors, then
    with the factors that this gave."""
    factors: tuple[float, ...] = priors
    for _ in range(2):
        limits = [(row, *host_and_device(weighted(row.parts, factors))) for row in rows]
        host_rows = [row for row, host, device in limits if host > device]
        device_rows = [row for row, host, device in limits if host <= device]
        heavy, light = solve([[part / row.seconds for part in row.parts[:2]] for row in device_rows], priors[:2])
        issued = [row.seconds / host_and_device(row.parts)[0] for row in host_rows]
        host_factor = median(issued) if issued else 1.0
        factors = (heavy, light, host_factor, host_factor, 1.0)
    return factors
