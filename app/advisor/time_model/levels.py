"""How long the operations of one calibration took beside those of the others: the state that each met the machine in.

What only some calibrations timed would carry their minutes into a mean of all: large products that the only slow one
of four timed would be told as slow, and smaller ones, which all timed, as they are on average.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from statistics import fmean, median

from probes.context import ContextOperation, OperationCost

# Of a kernel (or of a kind, where so many of a kernel were not timed by all) those that took nearest to as long: a
# neighbour's work slows what fills the cores, and not what is issued and done.
NEAREST, FEWEST = 9, 3

Costs = Sequence[OperationCost]
Ratios = list[tuple[float, tuple[float, ...]]]  # logarithms: mean seconds, and each calibration's beside them


class Levels:
    """Of one plan's calibrations. timed: each calibration's operations by the steps that they ran in."""

    def __init__(self, timed: Sequence[Mapping[Hashable, Costs]]) -> None:
        self._count = len(timed)
        found: dict[Hashable, Ratios] = defaultdict(list)
        for step in set.intersection(*(set(steps) for steps in timed)):
            for same in _same_operations([steps[step] for steps in timed]):
                logs = [math.log(cost.seconds) for cost in same]
                mean = fmean(logs)
                for key in _keys(same[0].operation):
                    found[key].append((mean, tuple(log - mean for log in logs)))
        self._found = {key: sorted(ratios) for key, ratios in found.items()}

    def log_level(self, operation: ContextOperation, seconds: float, of: Sequence[int]) -> float:
        """How much longer such operations took in these calibrations than in all, in the mean; 0 where nobody knows."""
        if len(of) == self._count:
            return 0.0
        known = (self._found.get(key, []) for key in _keys(operation))
        ratios = next((each for each in known if len(each) >= FEWEST), [])
        if not ratios:
            return 0.0
        near = _nearest(ratios, math.log(seconds))
        return fmean(median(logs[place] for _, logs in near) for place in of)


def _keys(operation: ContextOperation) -> tuple[Hashable, ...]:
    return (operation.name, operation.dtype), operation.kind


def _same_operations(rows: Sequence[Costs]) -> list[list[OperationCost]]:
    by_operation: list[dict[ContextOperation, OperationCost]] = [{c.operation: c for c in costs} for costs in rows]
    return [
        [each[operation] for each in by_operation]
        for operation in by_operation[0]
        if all(operation in each for each in by_operation)
    ]


def _nearest(ratios: Ratios, log_seconds: float) -> Ratios:
    low = high = bisect_left(ratios, (log_seconds,))
    while high - low < min(NEAREST, len(ratios)):
        below = log_seconds - ratios[low - 1][0] if low > 0 else math.inf
        above = ratios[high][0] - log_seconds if high < len(ratios) else math.inf
        low, high = (low - 1, high) if below <= above else (low, high + 1)
    return ratios[low:high]
