"""Where more real steps teach most, once every plan has run at the batch asked for."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean

from app.advisor.curves.over_batches import Batches, crossover_of
from app.advisor.curves.pairs import Pair
from app.advisor.environments import is_variant
from app.advisor.known import Known
from app.advisor.ranking import Ranking
from app.advisor.recommendation import Interval, Option
from app.advisor.time_model.intervals import Z
from app.advisor.time_model.step_estimate import StepEstimate, shared_spread, weakest
from probes.workload.description import Plan

# A quarter and four times the batch, and the same again: one step further out tells overhead from throughput, the
# next where algorithms have changed or a crossover may lie.
FACTORS = (1 / 4, 4.0, 1 / 16, 16.0)
# What is learned at a batch is worth half as much two octaves further from the batch asked for.
HALF_WORTH_OCTAVES = 2.0
# A time that nobody can tell is off by this factor either way (a logarithm), for all that is known.
UNKNOWN_SPREAD = 1.0
# Steps that a plan should get at least, and seconds for one batch size, and for each plan: less gives no steady figure.
LEAST_STEPS, LEAST_SECONDS, LEAST_SECONDS_OF_A_PLAN = 8, 0.6, 0.25
# Where there is time for them: what each plan takes in a process of its own, whose start, first step and samples these
# are (app.answering.apart); sharing one may make a step take 0.7 of its time (docs/decisions/0005).
STEPS_APART, SECONDS_TO_START = 20, 0.25
# Plans that run at other batch sizes: the ones that may be named there.
CONTENDERS = 2
# Of two plans that cross it is worth knowing which is faster where the chance that it is the other one is this.
IN_DOUBT = 0.3
# A batch within this factor of one that ran says nothing that is not known.
NEAR = 1.2


@dataclass(frozen=True, slots=True)
class Probe:
    """Plans to run in turns at another batch size, and the seconds that they want for it."""

    plans: tuple[Plan, ...]
    batch_size: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Probing:
    """A batch size that could run, and what would be learned there of these plans. pairs: those of which it is in doubt
    who wins. to_begin_seconds: before the first step of a job, or of a plan that has a process of its own. expected: by
    a plan's key, seconds of a step that are more likely than those that it is told to take."""

    known: Known
    options: Sequence[Option]
    pairs: Sequence[Pair]
    batch_size: int
    to_begin_seconds: float = 0.0
    expected: Mapping[tuple[object, ...], float] = field(default_factory=dict)

    @property
    def worth(self) -> float:
        """How much is not known, weighed by how near the batch is to what was asked."""
        unsure = fmean(_spread(estimate) for estimate in self._estimates([option.plan for option in self.options]))
        octaves = abs(math.log2(self.batch_size / self.known.workload.batch_size))
        in_doubt = sum(doubt(self._estimates(pair)) for pair in self.pairs)
        return float((unsure + in_doubt) * 0.5 ** (octaves / HALF_WORTH_OCTAVES))

    @property
    def seconds(self) -> float:
        steps = LEAST_STEPS * sum(map(self._step_seconds, self.options))
        return self.to_begin_seconds + max(LEAST_SECONDS, LEAST_SECONDS_OF_A_PLAN * len(self.options), steps)

    @property
    def seconds_apart(self) -> float:
        """That do for a process of its own for each plan."""
        start = max(SECONDS_TO_START, self.to_begin_seconds)
        each = (start + STEPS_APART * self._step_seconds(option) for option in self.options)
        return max(self.seconds, sum(each))

    def _step_seconds(self, option: Option) -> float:
        return self.expected.get(option.plan.key) or _seconds(self.known, option, self.batch_size)

    @property
    def is_possible(self) -> bool:
        """It fits, as far as that is known (else no more than twice what ran is tried), torch takes it, and not all has
        run there, or so near that nothing is to be learned."""
        room = _room(self.known.workload.batch_size, self.options)
        if self.batch_size > room or all(_is_known_near(self.known, o.plan, self.batch_size) for o in self.options):
            return False
        there = {option.plan.key: option for option in self.known.options(self.batch_size)}
        mine = [there[option.plan.key] for option in self.options]
        return not any(option.cannot_run or option.fits is False for option in mine)

    def _estimates(self, plans: Iterable[Plan]) -> list[StepEstimate | None]:
        return [_estimate(self.known, plan, self.batch_size) for plan in plans]


def choose_probe(
    known: Known, seconds: float, tried: Collection[int] = (), to_begin_seconds: float = 0.0
) -> Probe | None:
    """The batch size where the best plans' times, or which plan wins of those whose crossover is told, are known worst,
    of those that the seconds do for. None where they do for none, or nothing has been measured. tried: batch sizes
    whose turn has been. to_begin_seconds: see Probing."""
    asked = known.workload.batch_size
    ranking = known.ranking(asked, known.options(asked))
    ran = {option.plan.key: option for option in _that_ran(ranking.options)}
    first = contenders(ranking.unlike)
    batches = known.batches(ranking)
    pairs = _pairs(known, ranking, batches, first)
    crossing = {size for pair in pairs for size in sizes_to_find(batches, pair)}
    around = _sizes_around(asked, first)
    probing = partial(_probing, known, ran, to_begin_seconds)
    where = [probing(pairs, size, first) for size in around]
    where += [probing((), size, first) for size in around]  # where the time does not do for all of these
    where += [probing(pairs, size, ()) for size in sorted(crossing)]
    alone = [probing((), size, first[:1]) for size in around]  # beside a slow device
    chosen = _most_worth(where, seconds, tried) or _most_worth(alone, seconds, tried)
    if chosen is None:
        return None
    enough = min(chosen.seconds_apart, seconds)
    return Probe(tuple(option.plan for option in chosen.options), chosen.batch_size, enough)


def _most_worth(where: Sequence[Probing | None], seconds: float, tried: Collection[int]) -> Probing | None:
    possible = [each for each in where if each is not None and each.batch_size not in tried and each.is_possible]
    affordable = [each for each in possible if each.seconds <= seconds]
    chosen = max(affordable, key=lambda each: each.worth, default=None)
    return chosen if chosen is not None and chosen.worth > 0 else None


def contenders(options: Sequence[Option]) -> tuple[Option, ...]:
    """The best plan of each device, where there are several; the best plans of the one device else. Only what was
    measured: where nothing ran nothing more will. options: of one plan on cards that are alike, one."""
    ran = _that_ran(options)
    first_on: dict[str, Option] = {}
    for option in ran:
        first_on.setdefault(option.plan.device, option)
    found = tuple(first_on.values()) if len(first_on) > 1 else tuple(ran)
    return found[:CONTENDERS]


def sizes_to_find(batches: Batches, pair: Pair) -> tuple[int, ...]:
    """Batch sizes that would narrow where the pair crosses: where the medians do, and halfway (in ratio) from there to
    where it is certain. Empty where one is always the faster."""
    told = crossover_of(batches, *pair)
    if told is None or told.kind in ("always", "never") or told.medians_cross_at is None:
        return ()
    middle = told.medians_cross_at
    ends = [end for end in (told.low, told.high) if end is not None]
    return tuple(dict.fromkeys((middle, *(round(math.sqrt(end * middle)) for end in ends))))


def doubt(estimates: Sequence[StepEstimate | None]) -> float:
    """Twice the chance that the fastest of two plans is the other one: 1 where nobody can tell, 0 where it is plain or
    does not arise."""
    if len(estimates) < 2:
        return 0.0
    first, second = estimates[:2]
    if first is None or second is None:
        return 1.0
    if first.basis == second.basis == "measured":
        return 0.0
    spread = shared_spread(first, second) or math.hypot(_width(first.seconds), _width(second.seconds))
    distance = abs(math.log(first.seconds.median / second.seconds.median))
    return math.erfc(distance * Z / (max(spread, 1e-6) * math.sqrt(2)))


def _that_ran(options: Sequence[Option]) -> list[Option]:
    return [o for o in options if o.basis == "measured" and o.fits is not False and not is_variant(o.plan)]


def _probing(
    known: Known,
    ran: dict[tuple[object, ...], Option],
    to_begin_seconds: float,
    pairs: Sequence[Pair],
    size: int,
    always: Sequence[Option],
) -> Probing | None:
    """At this size, of these plans and of all whose pairs are in doubt there. None of none."""
    doubtful = [pair for pair in pairs if doubt([_estimate(known, plan, size) for plan in pair]) >= IN_DOUBT]
    keys = dict.fromkeys((*(option.plan.key for option in always), *(plan.key for pair in doubtful for plan in pair)))
    if not keys:
        return None
    return Probing(known, [ran[key] for key in keys], doubtful, size, to_begin_seconds)


def _pairs(known: Known, ranking: Ranking, batches: Batches, first: Sequence[Option]) -> list[Pair]:
    """Whose crossovers are told, and the contenders; of those that ran."""
    ran = {option.plan.key for option in _that_ran(ranking.options)}
    told = [pair for pair in known.pairs(ranking, batches) if all(plan.key in ran for plan in pair)]
    if len(first) == CONTENDERS and {option.plan.key for option in first} not in [{a.key, b.key} for a, b in told]:
        told.append((first[0].plan, first[1].plan))
    return told


def _sizes_around(asked: int, options: Sequence[Option]) -> list[int]:
    """Twice the batch only where four times it does not fit."""
    found = [max(1, round(asked * factor)) for factor in FACTORS]
    return list(dict.fromkeys(found if _room(asked, options) >= 4 * asked else [*found, 2 * asked]))


def _room(asked: int, options: Sequence[Option]) -> int:
    """What all of them can hold; where that is not known, twice the batch that ran."""
    return min((option.max_batch_size or 2 * asked for option in options), default=0)


def _estimate(known: Known, plan: Plan, size: int) -> StepEstimate | None:
    """As it is known; no more than probed where what was measured is in doubt."""
    found = known.times[plan.key].at(size, known.workload.data)
    if found is None or not _is_in_doubt(known, plan, size):
        return found
    return found._replace(basis=weakest((found.basis, "probed")))


def _is_known_near(known: Known, plan: Plan, size: int) -> bool:
    """It ran, and nothing of that is in doubt."""
    measured = known.times[plan.key].measured
    near = [] if measured is None else [ran for ran in measured.own_batch_sizes if size / NEAR <= ran <= size * NEAR]
    return any(not _is_in_doubt(known, plan, ran) for ran in near)


def _is_in_doubt(known: Known, plan: Plan, size: int) -> bool:
    """What was measured nearest to this batch met others on the cores, or on the device, who as far as is known are
    there no more; or slow cores alone, which may be calm by now; or what only its samples tell of, as they lie far
    apart."""
    time = known.times[plan.key]
    if time.relief(size) > 0 or (time.met_others(size) and plan.device not in known.busy):
        return True
    row = time.nearest_row(size)
    return row is not None and (row.is_reckoned or row.is_unsteady)


def _spread(estimate: StepEstimate | None) -> float:
    if estimate is None:
        return UNKNOWN_SPREAD
    return 0.0 if estimate.basis == "measured" else _width(estimate.seconds)


def _width(interval: Interval) -> float:
    return math.log(interval.high / interval.low) / 2 if interval.low > 0 else UNKNOWN_SPREAD


def _seconds(known: Known, option: Option, size: int) -> float:
    """A step's, at its longest; by proportion where nothing better is known."""
    found = known.times[option.plan.key].seconds(size, known.workload.data)
    if found is not None:
        return found.high
    asked = option.step_seconds.high if option.step_seconds is not None else 0.0
    return asked * max(1.0, size / known.workload.batch_size)
