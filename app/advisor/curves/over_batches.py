"""Curves over the batch, and the crossovers between them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from app.advisor.curves.crossover import Found, batch_grid, find_crossover, holds_from
from app.advisor.curves.pair_ratio import PairRatio, ratio_of
from app.advisor.curves.pairs import Pair, plans_of
from app.advisor.memory_model.stretches import EVERY, Stretches
from app.advisor.recommendation import Crossover, Curve
from app.advisor.time_model.measured import by_plan
from app.advisor.time_model.step_estimate import StepEstimate, compare, remembered_ratio_spread, weakest
from app.advisor.time_model.step_time import PlanTime
from probes import bounds
from probes.measurement import Measurement
from probes.workload.description import DATA, Data, Plan, Workload

# How far beyond the batch asked for to look, and the least to look at: crossovers of small models lie in the
# thousands. Powers of two up to here cost a dozen estimates.
LOOK_AHEAD = 16
LEAST_LARGEST = 4096
LARGEST = 65536

# By a plan's key, seconds before its steps are steady (startup_of).
Startups = Mapping[tuple[object, ...], float | None]


@dataclass(frozen=True, slots=True)
class Batches:
    """The batch sizes to look at, and those that each plan can hold (no entry: all), where batches reach a device as
    the workload says. smallest: what torch takes at least. failed: by the way in which batches arrive, then
    by the plan's key, sizes at which it was tried and failed. otherwise: what each plan can hold where batches arrive
    in another way; no entry: as much."""

    workload: Workload
    times: Mapping[tuple[object, ...], PlanTime]
    room: Mapping[tuple[object, ...], Stretches]
    smallest: int = 1
    failed: Mapping[Data, Mapping[tuple[object, ...], frozenset[int]]] = field(default_factory=dict)
    otherwise: Mapping[Data, Mapping[tuple[object, ...], Stretches]] = field(default_factory=dict)

    def fed(self, data: Data) -> Batches:
        """The same where batches reach a device as `data`."""
        if data == self.workload.data:
            return self
        times = {key: time.fed(data) for key, time in self.times.items()}
        room = self.otherwise.get(data, self.room)
        return replace(self, workload=replace(self.workload, data=data), times=times, room=room)

    def largest(self, plans: Sequence[Plan]) -> int:
        """The largest batch that each of these can hold, within what is worth looking at; 0 when one holds nothing."""
        limits = [limit for plan in plans if (limit := self.room_of(plan).largest) is not None]
        return min([largest_worth_looking_at(self.workload), *limits])

    def grid(self, plans: Sequence[Plan], also: Iterable[int] = ()) -> tuple[int, ...]:
        """Growing batches that all of these can run: powers of two, the one asked for, those at which one of them ran,
        those between which one has no room, and `also`."""
        largest = self.largest(plans)
        if largest < self.smallest:
            return ()
        ran = [self.times[plan.key].measured for plan in plans]
        there = [batch for row in ran if row is not None for batch in row.batch_sizes]
        ends = [end for plan in plans for end in self.room_of(plan).ends]
        sizes = batch_grid(largest, [self.workload.batch_size, *there, *ends, *also])
        return tuple(size for size in sizes if all(self.can_run(plan, size) for plan in plans))

    def can_run(self, plan: Plan, batch_size: int) -> bool:
        fits = self.smallest <= batch_size and batch_size in self.room_of(plan)
        return fits and batch_size not in self._failed(plan)

    def room_of(self, plan: Plan) -> Stretches:
        return self.room.get(plan.key, EVERY)

    def at(self, plan: Plan, batch_size: int) -> StepEstimate | None:
        """None where it cannot run, or is not known."""
        if not self.can_run(plan, batch_size):
            return None
        return self.times[plan.key].at(batch_size, self.workload.data)

    def _failed(self, plan: Plan) -> frozenset[int]:
        return self.failed.get(self.workload.data, {}).get(plan.key, frozenset())


def largest_worth_looking_at(workload: Workload) -> int:
    """No more than may be asked for."""
    ahead = min(max(LOOK_AHEAD * workload.batch_size, LEAST_LARGEST), max(LARGEST, 2 * workload.batch_size))
    return min(ahead, bounds.MAX_BATCH_SIZE)


def curves_over(batches: Batches, plans: Sequence[Plan]) -> tuple[tuple[int, ...], tuple[Curve, ...]]:
    """Batch sizes, and each plan's median step there; None where it does not fit or is not known."""
    ran = [row for plan in plans if (row := batches.times[plan.key].measured) is not None]
    also = [batches.workload.batch_size, *(batch for row in ran for batch in row.batch_sizes)]
    sizes = batch_grid(largest_worth_looking_at(batches.workload), also)
    curves = tuple(Curve(plan, tuple(_point(batches, plan, size) for size in sizes)) for plan in plans)
    known = [any(curve.step_seconds[i] is not None for curve in curves) for i in range(len(sizes))]
    kept = [i for i, some in enumerate(known) if some]
    return (
        tuple(sizes[i] for i in kept),
        tuple(Curve(curve.plan, tuple(curve.step_seconds[i] for i in kept)) for curve in curves),
    )


def _point(batches: Batches, plan: Plan, batch_size: int) -> float | None:
    found = batches.at(plan, batch_size)
    return found.seconds.median if found is not None else None


def crossovers_of(
    batches: Batches,
    pairs: Sequence[Pair],
    measurements: Sequence[Measurement],
    begun: Startups = MappingProxyType({}),
) -> tuple[Crossover, ...]:
    """The crossovers of these pairs; with a device in a pair, one for each way of feeding it. begun: of plans whose own
    start was not measured, what is known of it otherwise (app.advisor.starts.device_starts)."""
    fed = {data: batches.fed(data) for data in DATA}
    rows, asked = by_plan(measurements), batches.workload.batch_size
    own = {plan.key: startup_of(plan, rows.get(plan.key, ()), asked) for plan in plans_of(pairs, None)}
    startups = {key: begun.get(key) if seconds is None else seconds for key, seconds in own.items()}
    found: list[Crossover] = []
    for first, second in pairs:
        both_cpu = first.is_cpu and second.is_cpu
        for data in (batches.workload.data,) if both_cpu else DATA:
            crossover = crossover_of(fed[data], first, second, startups)
            if crossover is not None:
                found.append(crossover)
    return tuple(found)


def crossover_of(
    batches: Batches, first: Plan, second: Plan, startups: Startups = MappingProxyType({})
) -> Crossover | None:
    """From the first plan to the second; None when of fewer than two batches both are known, or fewer fit. startups: of
    steps at the batch asked for."""
    grid, both = batches.grid([first, second]), (first, second)
    known = [batch for batch in grid if all(batches.at(plan, batch) is not None for plan in both)]
    ratio, spread = _ratio_of(batches, first, second, known), remembered_ratio_spread()

    def sign(batch: int) -> int | None:
        plain = compare(batches.at(first, batch), batches.at(second, batch), spread)
        if ratio is None or plain is None:
            return plain
        told = ratio.sign(batch)
        return 0 if batch in ratio.ran and told * plain < 0 else told  # nobody knows what is so where both did run

    found = find_crossover(sign, known)
    if found is None:
        return None
    likeliest = _medians_cross_at(first, second, batches, known, ratio)
    batch_size = _within(found, likeliest)
    estimates = [batches.at(plan, at) for at in _deciding(found, batch_size, known) for plan in both]
    bases = [estimate.basis for estimate in estimates if estimate is not None]
    ours, theirs = batches.times[first.key], batches.times[second.key]
    is_told = theirs.predicted is not None and not second.is_cpu
    until = theirs.launch_bound_until(batches.grid([second])) if is_told else None
    return Crossover(
        start=first,
        to=second,
        data=batches.workload.data,
        kind=found.kind,
        batch_size=batch_size,
        low=found.low,
        high=found.high,
        medians_cross_at=likeliest,
        launch_bound_until=until,
        launch_bound_at_largest=until is None if is_told else None,
        break_even_steps=break_even_steps(ours, theirs, batches, startups),
        basis=weakest(bases if ratio is None else [*bases, "probed"]),  # it rests on other batches, too
        looked_at=(known[0], known[-1]),
    )


def _ratio_of(batches: Batches, first: Plan, second: Plan, known: Sequence[int]) -> PairRatio | None:
    """None where others hold cores that either needs at any of these batches, too: then times are told as these make
    them."""
    told = (batches.at(plan, batch) for batch in known for plan in (first, second))
    if len(known) < 2 or any(estimate is not None and estimate.slowed > 1 for estimate in told):
        return None
    return ratio_of(batches.times[first.key], batches.times[second.key], batches.workload.data)


def _within(found: Found, likeliest: int | None) -> int | None:
    """The likeliest batch of a crossover that is certain; None of any other (docs/decisions/0017)."""
    if found.low is None or found.high is None:
        return None
    return found.high if likeliest is None else min(max(likeliest, found.low), found.high)


def _deciding(found: Found, batch_size: int | None, known: Sequence[int]) -> Sequence[int]:
    """The batches by which it is what it is: where the two cross; the largest looked at, by which the first stays ahead
    or it is undecided; both ends, from one of which to the other the second is ahead."""
    if batch_size is not None:
        return (batch_size,)
    return (known[0], known[-1]) if found.kind == "always" else (known[-1],)


def _medians_cross_at(
    first: Plan, second: Plan, batches: Batches, known: Sequence[int], ratio: PairRatio | None
) -> int | None:
    """The smallest batch from which the second's median is the lower one at every larger batch looked at; None when it
    is not at the largest. known: batches of which both times are."""

    def is_lower(batch: int) -> bool:
        ours, theirs = batches.at(first, batch), batches.at(second, batch)
        if ours is None or theirs is None:
            return False
        return theirs.seconds.median < ours.seconds.median if ratio is None else ratio.log_ratio(batch) > 0

    return holds_from(is_lower, known)


def break_even_steps(first: PlanTime, second: PlanTime, batches: Batches, startups: Startups) -> int | None:
    """Steps at the batch asked for after which the second plan's longer start is repaid; None when a device's start is
    not known, when one cannot run there or the second is not faster, and on one device, where both start alike. The
    CPU's, which is its first step's, counts as nothing where nobody knows it."""
    asked = batches.workload.batch_size
    if first.plan.device == second.plan.device or not all(batches.can_run(t.plan, asked) for t in (first, second)):
        return None
    starts = [startups.get(time.plan.key) for time in (first, second)]
    if starts[0] is None and first.plan.is_cpu:
        starts[0] = 0.0
    times = [time.seconds(asked, batches.workload.data) for time in (first, second)]
    if starts[0] is None or starts[1] is None or times[0] is None or times[1] is None:
        return None
    gain = times[0].median - times[1].median
    if gain <= 0:
        return None
    return math.ceil(max(starts[1] - starts[0], 0.0) / gain)


def startup_of(plan: Plan, measurements: Sequence[Measurement], batch_size: int) -> float | None:
    """Seconds before steps of this batch are steady; None where they were not measured. Of a device the most that was
    measured of the plan at any batch: its context and libraries, which only the first of a process pays. On a CPU what
    the first step takes beyond the others, which goes with its batch."""
    key = plan.key
    rows = [row for row in measurements if row.plan.key == key and row.outcome == "ok"]
    there = [row.startup_seconds for row in rows if not plan.is_cpu or row.batch_size == batch_size]
    return max((seconds for seconds in there if seconds is not None), default=None)
