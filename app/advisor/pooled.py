"""What several calibrations of one machine say together, as one profile.

A shared machine is another one from minute to minute: a calibration meets one of its states, the steps that are asked
about meet others. The mean of calibrations of different hours is nearer to those than the latest of them
(docs/decisions/0011).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, TypeVar

from app.advisor.levels import Levels
from app.advisor.noise_signs import OF_THREADS, is_disturbed
from probes.context import Context, ContextOperation, OperationCost
from probes.measurement import Timing
from probes.profile import NetworkPoint, Point, Profile
from probes.trace import Trace

T = TypeVar("T")

# The latest so many of each plan, among the latest so many: of one device alone there may be several in a row.
POOLED, LOOKED_AT = 4, 8


def pool(calibrations: Sequence[Profile]) -> Profile:
    """One profile of the latest POOLED calibrations of each plan (newest first, at least one) of one machine in one
    state.

    Times are geometric means of what each measured; what only some measured (other devices, fewer points) stands as
    they have it, but for operations inside steps, which are told as all would have timed them (Levels). Disturbed
    calibrations count only where all are, for plans that no other measured, and for a device's, where only the CPU's
    threads were disturbed; one whose networks are not the newest's (of another version of crosspoint) does not.
    """
    latest = _latest(calibrations)
    calm = [each for each in latest if not is_disturbed(each)] or latest
    plans = {plan for each in calm for plan in _plans_of(each)}
    on_cpu = {plan for plan in plans if plan[0] == "cpu"}
    disturbed = [
        _without_plans(each, plans if is_disturbed(each, on_devices=True) else on_cpu)
        for each in latest
        if not any(each is other for other in calm)
    ]
    alone = [each for each in disturbed if each.points or each.networks]
    pooled = [each for each in (*calm, *alone) if _same_networks(each, calm[0])]
    newest = pooled[0]
    if len(pooled) == 1:
        return newest
    return replace(
        newest,
        calibrations=len(pooled),
        effort="full" if any(each.effort == "full" for each in pooled) else newest.effort,
        noise=_mean_noise(pooled),
        context_bytes=_merged([each.context_bytes for each in pooled]),
        workspace_bytes=_merged([each.workspace_bytes for each in pooled]),
        paces=_quickest([each.paces for each in pooled]),
        points=tuple(_mean_point(rows) for rows in _grouped((each.points for each in pooled), _point_key)),
        networks=_mean_networks(pooled),
        contexts=_mean_contexts(pooled),
    )


def _latest(calibrations: Sequence[Profile]) -> list[Profile]:
    """What counts of each: the plans that fewer than POOLED newer ones measured."""
    counts: Counter[tuple[object, ...]] = Counter()
    found: list[Profile] = []
    for each in calibrations[:LOOKED_AT]:
        mine = _plans_of(each)
        enough = {plan for plan in mine if counts[plan] >= POOLED}
        if not found or len(enough) < len(mine):
            found.append(_without_plans(each, enough) if enough else each)
            counts.update(mine)
    return found


def _plans_of(profile: Profile) -> set[tuple[object, ...]]:
    rows: tuple[Point | NetworkPoint | Context, ...] = (*profile.points, *profile.networks, *profile.contexts)
    return {row.plan.key for row in rows}


def _without_plans(profile: Profile, plans: Collection[tuple[object, ...]]) -> Profile:
    """Nor what those of the CPU found, where it is left out."""
    without_cpu = any(plan[0] == "cpu" for plan in plans)
    return replace(
        profile,
        noise={name: value for name, value in profile.noise.items() if not (without_cpu and name in OF_THREADS)},
        points=tuple(point for point in profile.points if point.plan.key not in plans),
        networks=tuple(point for point in profile.networks if point.plan.key not in plans),
        contexts=tuple(context for context in profile.contexts if context.plan.key not in plans),
    )


def _same_networks(one: Profile, other: Profile) -> bool:
    """Whether networks of one name are the same model in both."""
    ours = {(point.name, point.trace.mode): point.trace.model_key for point in one.networks}
    theirs = {(point.name, point.trace.mode): point.trace.model_key for point in other.networks}
    return all(theirs.get(name, key) == key for name, key in ours.items())


def _grouped(calibrations: Iterable[Iterable[T]], key: Callable[[T], Hashable]) -> list[list[T]]:
    """What is the same in several calibrations, newest first."""
    groups: dict[Hashable, list[T]] = {}
    for rows in calibrations:
        for row in rows:
            groups.setdefault(key(row), []).append(row)
    return list(groups.values())


def _point_key(point: Point) -> Hashable:
    """Page faults were counted, and may be one more or less each time; everything else was chosen."""
    chosen = {name: value > 0 if name == "faults" else value for name, value in point.parameters.items()}
    return point.constant, point.plan.key, tuple(sorted(chosen.items())), point.flops, point.bytes


def _network_key(point: NetworkPoint) -> Hashable:
    return point.name, point.batch_size, point.plan.key, point.trace.mode


def _step_key(context: Context) -> Hashable:
    return context.network, context.batch_size, context.mode


def _mean_point(rows: Sequence[Point]) -> Point:
    return replace(rows[0], seconds=_mean_timing([row.seconds for row in rows]))


def _mean_networks(pooled: Sequence[Profile]) -> tuple[NetworkPoint, ...]:
    """With one trace for each model and mode: it stands in a document once."""
    traces: dict[Hashable, Trace] = {}
    found = []
    for rows in _grouped((each.networks for each in pooled), _network_key):
        newest = rows[0]
        trace = traces.setdefault((newest.trace.model_key, newest.trace.mode, newest.trace.optimizer), newest.trace)
        timing = _mean_timing([row.seconds for row in rows])
        faults = fmean(row.page_faults for row in rows)
        found.append(replace(newest, seconds=timing, trace=trace, page_faults=_rounded(faults)))
    return tuple(found)


def _mean_contexts(pooled: Sequence[Profile]) -> tuple[Context, ...]:
    """As all calibrations of a plan would have timed them (Levels), whichever did."""
    timed: dict[Hashable, list[dict[Hashable, Context]]] = {}  # by plan and clock, each calibration's
    for each in pooled:
        mine: dict[Hashable, dict[Hashable, Context]] = defaultdict(dict)
        for context in each.contexts:
            mine[context.plan.key, context.clock][_step_key(context)] = context
        for plan, steps in mine.items():
            timed.setdefault(plan, []).append(steps)
    found = []
    for calibrations in timed.values():
        levels = Levels([{key: context.costs for key, context in steps.items()} for steps in calibrations])
        for key in dict.fromkeys(key for steps in calibrations for key in steps):
            rows = {place: steps[key] for place, steps in enumerate(calibrations) if key in steps}
            found.append(_mean_context(rows, levels))
    return tuple(found)


def _mean_context(rows: Mapping[int, Context], levels: Levels) -> Context:
    """rows: by the place of the calibration."""
    timed: dict[ContextOperation, dict[int, OperationCost]] = defaultdict(dict)
    for place, row in rows.items():
        for cost in row.costs:
            timed[cost.operation][place] = cost
    newest = next(iter(rows.values()))
    issued = next((row.issued for row in rows.values() if row.issued is not None), None)
    costs = tuple(_mean_cost(operation, same, levels) for operation, same in timed.items())
    return replace(newest, costs=costs, issued=issued)


def _mean_cost(operation: ContextOperation, rows: Mapping[int, OperationCost], levels: Levels) -> OperationCost:
    seconds = _mean([row.seconds for row in rows.values()])
    seconds = _rounded(seconds / math.exp(levels.log_level(operation, seconds, tuple(rows))))
    spread = fmean(row.spread for row in rows.values())
    return next(iter(rows.values()))._replace(seconds=seconds, spread=round(spread, 2))


def _mean_timing(rows: Sequence[Timing]) -> Timing:
    """samples: each calibration's median."""
    if len(rows) == 1:
        return rows[0]
    medians = tuple(row.median for row in rows)
    return Timing(_mean(medians), _mean([row.low for row in rows]), _mean([row.high for row in rows]), medians)


def _mean(values: Sequence[float]) -> float:
    """Geometric: a state that makes all steps twice as long counts as much as one that makes them half as long."""
    return _rounded(math.exp(fmean(math.log(value) for value in values)))


def _mean_noise(pooled: Sequence[Profile]) -> dict[str, float | None]:
    names = dict.fromkeys(name for each in pooled for name in each.noise)
    known: dict[str, list[Any]] = {name: [each.noise.get(name) for each in pooled] for name in names}
    means = {name: [value for value in values if value is not None] for name, values in known.items()}
    return {name: _rounded(fmean(values)) if values else None for name, values in means.items()}


def _quickest(paces: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """What a calibration among neighbours read is theirs."""
    threads = sorted({threads for each in paces for threads in each})
    return {count: min(each[count] for each in paces if count in each) for count in threads}


def _merged(by_device: Sequence[Mapping[str, int] | None]) -> dict[str, int] | None:
    """Newest first, whose word counts."""
    merged: dict[str, int] = {}
    for each in reversed(by_device):
        merged |= each or {}
    return merged or None


def _rounded(value: float) -> float:
    """To the figures that a calibration's times have."""
    return float(f"{value:.4g}")
