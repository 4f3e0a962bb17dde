"""What issuing an operation takes the host, on a device that computes by itself: read off the operations that were
clocked in whole steps.

It hangs on the operation's name, not on its size: Python, torch's dispatcher and the driver queue a kernel, and whether
it has much to do they never learn. The first of a name in a step takes longer than those after it, as its code has left
the caches meanwhile.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from app.advisor.numerics import NDArray, np
from app.advisor.operation_prices.device_operations import same_kernel
from probes.context import Context, ContextOperation
from probes.trace import Kind

# How many times as long the first of a name takes as each after it, and how firmly, in steps that were clocked: on an
# H200's host products took 30 us at first and 35 each, convolutions 67 and 85 (2026-11-26; a fit over 36 networks).
FIRST, HOLD = 2.0, 0.1
REWEIGHTINGS, TOLERATED_ERROR = 4, 0.2
LEAST_SHARE = 0.05  # of what one takes on average, that each after the first takes at least

Name = tuple[str, Kind]
Numbers = NDArray[np.float64]


class Run(NamedTuple):
    """All of one name in one step: how many there were, and what they took together."""

    network: str
    times: int
    seconds: float


class Price(NamedTuple):
    """Seconds. extra: that the first takes longer than each after it."""

    extra: float
    each: float

    def seconds(self, times: float) -> float:
        return self.extra + self.each * times if times > 0 else 0.0


@dataclass
class IssuingPrices:
    """runs: by name, by kind, and of all, each step's. Never empty."""

    runs: Mapping[Hashable, Sequence[Run]]
    _prices: dict[tuple[Hashable, str | None], Price | None] = field(default_factory=dict)

    def seconds(self, counts: Mapping[Name, float], without: str | None = None) -> float:
        """Of a step that issues so many of each. without: as if this network had never been clocked."""
        return sum(self._price(name, kind, without).seconds(times) for (name, kind), times in counts.items())

    def finish_fitting(self) -> None:
        """No more network is left out: keep nothing that only that takes."""
        self._prices = {key: price for key, price in self._prices.items() if key[1] is None}

    def _price(self, name: str, kind: Kind, without: str | None) -> Price:
        for key in (("name", name), ("kind", kind), "all"):
            price = self._fitted(key, without)
            if price is not None:
                return price
        return Price(0.0, 0.0)

    def _fitted(self, key: Hashable, without: str | None) -> Price | None:
        place = (key, without)
        if place not in self._prices:
            rows = [run for run in self.runs.get(key, ()) if run.network != without]
            self._prices[place] = fit_price(rows) if rows else None
        return self._prices[place]


def issuing_prices(contexts: Iterable[Context], mode: str) -> IssuingPrices | None:
    """Of a device, by the host's clock; under all its plans, as the host does the same for each. Steps of another mode
    tell of what this one's lack. None without any."""
    mine: dict[Hashable, list[Run]] = defaultdict(list)
    others: dict[Hashable, list[Run]] = defaultdict(list)
    for context in contexts:
        if context.clock == "host":
            found = mine if context.mode == mode else others
            for key, times, seconds in _by_name(context):
                found[key].append(Run(context.network, times, seconds))
    runs = {**others, **mine}
    return IssuingPrices(runs) if runs else None


def count_names(operations: Iterable[tuple[ContextOperation, float]]) -> Counter[Name]:
    """operations: with their executions."""
    counts: Counter[Name] = Counter()
    for operation, times in operations:
        same = same_kernel(operation)
        counts[same.name, same.kind] += times  # type: ignore[assignment]
    return counts


def _by_name(context: Context) -> Iterable[tuple[Hashable, int, float]]:
    totals: dict[Hashable, tuple[int, float]] = {}
    for cost in context.costs:
        same = same_kernel(cost.operation)
        for key in (("name", same.name), ("kind", same.kind), "all"):
            times, seconds = totals.get(key, (0, 0.0))
            totals[key] = times + cost.times, seconds + cost.times * cost.seconds
    return [(key, times, seconds) for key, (times, seconds) in totals.items()]


def fit_price(runs: Sequence[Run]) -> Price:
    """Least squares of relative errors, outliers weighed less, held to FIRST; of at least one."""
    times = np.array([float(run.times) for run in runs])
    seconds = np.array([run.seconds for run in runs])
    usual = float(np.median(seconds / times))
    weights = np.ones(len(runs))
    price = Price(0.0, usual)
    for _ in range(REWEIGHTINGS):
        price = _solve(times, usual / seconds, weights, usual)
        errors = np.abs(np.log((price.extra + price.each * times) / seconds))
        weights = np.minimum(1.0, TOLERATED_ERROR / np.maximum(errors, 1e-9))
    return price


def _solve(times: Numbers, ones: Numbers, weights: Numbers, usual: float) -> Price:
    """The normal equations of (extra, each) in units of `usual`, with a row that holds extra = (FIRST - 1) * each.
    times: of each run; ones: `usual` over its seconds."""
    more = FIRST - 1.0
    once, twice = weights * ones, weights * ones * ones
    aa = HOLD + float(twice.sum())
    ab = -HOLD * more + float(twice @ times)
    bb = HOLD * more * more + float(twice @ (times * times))
    ra, rb = float(once.sum()), float(once @ times)
    determinant = aa * bb - ab * ab
    if not determinant > 0:  # times of which one is nothing beside another: nothing holds
        return Price(0.0, usual)
    extra, each = (ra * bb - rb * ab) / determinant, (rb * aa - ra * ab) / determinant
    if extra < 0:
        extra, each = 0.0, rb / bb
    if each < LEAST_SHARE:
        each = LEAST_SHARE
        extra = max((ra - ab * each) / aa, 0.0)
    return Price(extra * usual, each * usual)
