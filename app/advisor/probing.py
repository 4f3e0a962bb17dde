"""Where more real steps teach most, once every plan has run at the batch asked for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from app.advisor.environments import is_variant
from app.advisor.intervals import Z
from app.advisor.known import Known
from app.advisor.recommendation import Interval, Option
from app.advisor.step_time import StepEstimate, shared_spread
from probes.workload.description import Plan

# A quarter and four times the batch, and the same again: one step further out tells overhead from throughput, the
# next where algorithms have changed or a crossover may lie.
FACTORS = (1 / 4, 4.0, 1 / 16, 16.0)
# What is learned at a batch is worth half as much two octaves further from the batch asked for.
HALF_WORTH_OCTAVES = 2.0
# A time that nobody can tell is off by this factor either way (a logarithm), for all that is known.
UNKNOWN_SPREAD = 1.0
# Steps that a plan should get at least, and seconds for one batch size: less gives no steady figure.
LEAST_STEPS, LEAST_SECONDS = 8, 1.0
# Plans that run at other batch sizes: the ones that may be named there.
CONTENDERS = 2


@dataclass(frozen=True, slots=True)
class Probe:
    """Plans to run at other batch sizes, the most telling one first."""

    plans: tuple[Plan, ...]
    batch_sizes: tuple[int, ...]


def choose_probe(known: Known, seconds: float) -> Probe | None:
    """The best plans at the batch sizes where their times, or which of them wins, are known worst; as many as the
    seconds do for. None where they do for none, or nothing has been measured."""
    options = known.ranking(known.workload.batch_size, known.options(known.workload.batch_size)).options
    plans = contenders(options)
    worth = {size: _worth(known, plans, size) for size in _sizes(known.workload.batch_size, plans)}
    sizes = sorted((size for size in worth if worth[size] > 0), key=lambda size: -worth[size])
    chosen = tuple(_within(known, plans, sizes, seconds))
    return Probe(tuple(option.plan for option in plans), chosen) if chosen else None


def contenders(options: Sequence[Option]) -> tuple[Option, ...]:
    """The best plan of each device, where there are several; the best plans of the one device else. Only what was
    measured: where nothing ran nothing more will."""
    ran = [o for o in options if o.basis == "measured" and o.fits is not False and not is_variant(o.plan)]
    first_on: dict[str, Option] = {}
    for option in ran:
        first_on.setdefault(option.plan.device, option)
    found = tuple(first_on.values()) if len(first_on) > 1 else tuple(ran)
    return found[:CONTENDERS]


def _sizes(asked: int, plans: Sequence[Option]) -> list[int]:
    """Batch sizes within what every contender can hold; where that is not known, none larger than twice the batch."""
    room = min((option.max_batch_size or 2 * asked for option in plans), default=0)
    found = (max(1, round(asked * factor)) for factor in FACTORS)
    return [size for size in dict.fromkeys((*found, 2 * asked)) if size != asked and size <= room][: len(FACTORS)]


def _worth(known: Known, options: Sequence[Option], size: int) -> float:
    """How much is not known there, weighed by how near it is to what was asked."""
    estimates = [known.times[option.plan.key].at(size, known.workload.data) for option in options]
    unsure = sum(_spread(estimate) for estimate in estimates) / len(estimates)
    octaves = abs(math.log2(size / known.workload.batch_size))
    return float((unsure + doubt(estimates)) * 0.5 ** (octaves / HALF_WORTH_OCTAVES))


def _spread(estimate: StepEstimate | None) -> float:
    if estimate is None:
        return UNKNOWN_SPREAD
    return 0.0 if estimate.basis == "measured" else _width(estimate.seconds)


def _width(interval: Interval) -> float:
    return math.log(interval.high / interval.low) / 2 if interval.low > 0 else UNKNOWN_SPREAD


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


def _within(known: Known, options: Sequence[Option], sizes: Iterable[int], seconds: float) -> Iterable[int]:
    """The sizes, in their order, that the seconds do for; one that takes too long costs the others nothing."""
    for size in sizes:
        needed = max(LEAST_SECONDS, LEAST_STEPS * sum(_seconds(known, option, size) for option in options))
        if needed <= seconds:
            seconds -= needed
            yield size


def _seconds(known: Known, option: Option, size: int) -> float:
    """A step's, at its longest; by proportion where nothing better is known."""
    found = known.times[option.plan.key].seconds(size, known.workload.data)
    if found is not None:
        return found.high
    asked = option.step_seconds.high if option.step_seconds is not None else 0.0
    return asked * max(1.0, size / known.workload.batch_size)
