"""Whole steps, and the operations in them, as several calibrations together would have timed them.

Not every calibration has time for every step. What only some timed is put to the level of all (Levels): a step and its
operations are of the same minutes then, whichever calibrations timed the one and the other.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Generic, TypeVar

from app.advisor.time_model.levels import Levels
from app.advisor.time_model.means import grouped, mean, mean_timing, rounded
from probes.context import Context, ContextOperation, OperationCost
from probes.measurement import Timing
from probes.points import NetworkPoint
from probes.profile import Profile
from probes.reckoned import Timed, on_calm_cores
from probes.trace import Trace

T = TypeVar("T", bound=Timed)

_Steps = dict[Hashable, Context]  # by network, batch size and mode


class PooledSteps:
    """pooled: calibrations of one machine, newest first, each with the plans of which it counts."""

    def __init__(self, pooled: Sequence[Profile]) -> None:
        self._pooled = pooled
        clocked: dict[Hashable, dict[int, _Steps]] = {}  # by plan and clock, then by calibration
        for calibration, context in _on_calm_cores((each.contexts for each in pooled), _context_key):
            by_calibration = clocked.setdefault((context.plan.key, context.clock), {})
            by_calibration.setdefault(calibration, {})[_step_of(context)] = context
        self._clocked = {key: _Clocked(by_calibration) for key, by_calibration in clocked.items()}

    def contexts(self) -> tuple[Context, ...]:
        return tuple(context for clocked in self._clocked.values() for context in clocked.contexts())

    def networks(self) -> tuple[NetworkPoint, ...]:
        """With one trace for each model and mode: it stands in a document once."""
        traces: dict[Hashable, Trace] = {}
        found = []
        numbered = _on_calm_cores((each.networks for each in self._pooled), _network_key)
        for rows in grouped([numbered], lambda row: _network_key(row[1])):
            newest = rows[0][1]
            trace = traces.setdefault((newest.trace.model_key, newest.trace.mode, newest.trace.optimizer), newest.trace)
            faults = fmean(row.page_faults for _, row in rows)
            timing = self._timing(dict(rows))
            found.append(replace(newest, seconds=timing, trace=trace, page_faults=rounded(faults)))
        return tuple(found)

    def _timing(self, rows: Mapping[int, NetworkPoint]) -> Timing:
        """rows: by calibration. A device's steps are of two clocks, whose operations say nothing of the sum."""
        timing, point = mean_timing([row.seconds for row in rows.values()]), next(iter(rows.values()))
        clocked = self._clocked.get((point.plan.key, "host")) if point.plan.is_cpu else None
        if clocked is None:
            return timing
        factor = math.exp(-clocked.log_level((point.name, point.batch_size, point.trace.mode), rows))
        return Timing(
            rounded(timing.median * factor),
            rounded(timing.low * factor),
            rounded(timing.high * factor),
            tuple(rounded(sample * factor) for sample in timing.samples),
        )


class _Clocked:
    """Steps of one plan whose operations were timed by one clock. by_calibration: newest first."""

    def __init__(self, by_calibration: Mapping[int, _Steps]) -> None:
        self._places = {calibration: place for place, calibration in enumerate(by_calibration)}
        self._steps = list(by_calibration.values())
        self._levels = Levels([{key: each.costs for key, each in steps.items()} for steps in self._steps])

    def contexts(self) -> list[Context]:
        keys = dict.fromkeys(key for steps in self._steps for key in steps)
        return [self._mean_context(key) for key in keys]

    def log_level(self, step: Hashable, calibrations: Iterable[int]) -> float:
        """How much longer than in all of them the step's operations took in these; 0 where nobody knows."""
        of = tuple(self._places[each] for each in calibrations if each in self._places)
        context = next((steps[step] for steps in self._steps if step in steps), None)
        if not of or context is None or context.seconds <= 0:
            return 0.0
        levels = (
            cost.times * cost.seconds * self._levels.log_level(cost.operation, cost.seconds, of)
            for cost in context.costs
        )
        return sum(levels) / context.seconds

    def _mean_context(self, step: Hashable) -> Context:
        rows = {place: steps[step] for place, steps in enumerate(self._steps) if step in steps}
        timed: dict[ContextOperation, dict[int, OperationCost]] = defaultdict(dict)
        for place, row in rows.items():
            for cost in row.costs:
                timed[cost.operation][place] = cost
        newest = next(iter(rows.values()))
        issued = next((row.issued for row in rows.values() if row.issued is not None), None)
        costs = tuple(self._mean_cost(operation, same) for operation, same in timed.items())
        return replace(newest, costs=costs, issued=issued)

    def _mean_cost(self, operation: ContextOperation, rows: Mapping[int, OperationCost]) -> OperationCost:
        seconds = mean([row.seconds for row in rows.values()])
        seconds = rounded(seconds / math.exp(self._levels.log_level(operation, seconds, tuple(rows))))
        spread = fmean(row.spread for row in rows.values())
        return next(iter(rows.values()))._replace(seconds=seconds, spread=round(spread, 2))


@dataclass(frozen=True, slots=True)
class _Numbered(Generic[T]):
    """A row of the calibration with this number."""

    number: int
    row: T

    @property
    def reckoned(self) -> bool:
        return self.row.reckoned


def _on_calm_cores(calibrations: Iterable[Iterable[T]], key: Callable[[T], Hashable]) -> list[tuple[int, T]]:
    """What counts of the rows of each calibration, with its number: of those of one key the ones on calm cores."""
    numbered = ([_Numbered(number, row) for row in rows] for number, rows in enumerate(calibrations))
    same = grouped(numbered, lambda each: key(each.row))
    counting = sorted((each for rows in same for each in on_calm_cores(rows)), key=lambda each: each.number)
    return [(each.number, each.row) for each in counting]


def _context_key(context: Context) -> Hashable:
    return context.plan.key, context.clock, _step_of(context)


def _network_key(point: NetworkPoint) -> Hashable:
    return point.name, point.batch_size, point.plan.key, point.trace.mode


def _step_of(context: Context) -> Hashable:
    return context.network, context.batch_size, context.mode
