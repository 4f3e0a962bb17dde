"""What this machine's measurements of other models say of a model that was not measured.

A prediction errs alike on like steps. So what like workloads took beyond their predictions, weighted by likeness,
corrects a new one's: little where few are like it, never by more than they were off, and with the interval that their
own scatter shows.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from app.advisor.recommendation import Interval
from app.advisor.time_model.intervals import Z
from app.advisor.time_model.likeness import OTHER_MODE, likeness
from probes.signature import Signature, signature_of
from probes.trace import Trace
from probes.workload.description import Plan

# Of a workload's lessons those under another plan of the same device count for less: kernels of another precision are
# others, while more threads run the same ones. Of a plan that it did not teach the others tell as much as of
# themselves: else what was taught of one alone, as longer than predicted, would put all others before it.
OTHER_THREADS, OTHER_PRECISION = 0.4, 0.2
# As much unlike workloads as this say that the prediction is right as it is.
DOUBT = 0.5
# The interval starts as if this many workloads had shown the profile's own spread.
WEIGHT_OF_SPREAD = 4.0
# Less likeness than this, all lessons together, says nothing.
LEAST_WEIGHT, LEAST_LIKENESS = 0.1, 1e-3
# Of the most alike: what is less like than that is among those that count, and hardly does.
TELLING = 0.05
# What is off by more than this factor is off for a reason of its own.
MOST_LOG_RATIO = math.log(10)
# Corrections are worked out at powers of this, and lie on straight lines over the batch's logarithm in between.
KNOT = 4.0


@dataclass(frozen=True, slots=True)
class Lesson:
    """One plan of another workload that ran here. log_ratio: of what it took over what is predicted for it."""

    workload: str
    mode: str
    plan: Plan
    signature: Signature
    log_ratio: float


@dataclass(frozen=True, slots=True)
class Learned:
    """log_ratio: what to correct a prediction by. weight: how many wholly like workloads the lessons amount to.
    scatter: their standard deviation around the correction, as a logarithm."""

    log_ratio: float = 0.0
    weight: float = 0.0
    scatter: float = 0.0

    def spread(self, spread: float) -> float:
        """The spread of a corrected prediction, from what it was without (app.advisor.time_model.intervals)."""
        shown = self.weight * (Z * self.scatter) ** 2
        return math.sqrt((WEIGHT_OF_SPREAD * spread**2 + shown) / (WEIGHT_OF_SPREAD + self.weight))

    def correct(self, told: Interval) -> Interval:
        """A prediction with each of its sides."""
        middle = told.median * math.exp(self.log_ratio)
        below, above = math.log(told.median / told.low), math.log(told.high / told.median)
        return Interval(middle, middle * math.exp(-self.spread(below)), middle * math.exp(self.spread(above)))


NOTHING = Learned()


class Heard(NamedTuple):
    """A lesson that counts for a step. likeness: of the two steps. same_plan: how much it counts among those of its
    workload, both from 0 to 1. log_ratio: as of the lesson."""

    likeness: float
    same_plan: float
    log_ratio: float

    @property
    def weight(self) -> float:
        return self.likeness * self.same_plan


Voices: TypeAlias = dict[str, list[Heard]]  # by workload


def learn(
    lessons: Sequence[Lesson],
    plan: Plan,
    mode: str,
    step: Signature,
    known: dict[int, float] | None = None,
    kinds: Mapping[str, Hashable] = MappingProxyType({}),
) -> Learned:
    """Each workload has one voice, however often it was measured: its lessons' mean, weighted by their likeness.

    known: likenesses to this step found so far, by the identity of the signature; the plans of a step share them.
    kinds: by device, the same for cards that are alike, which learn of each other.
    """
    voices = hear(lessons, plan, mode, step, {} if known is None else known, kinds)
    weights = {name: max(row.likeness for row in rows) for name, rows in voices.items()}
    total = sum(weights.values())
    if total < LEAST_WEIGHT:
        return NOTHING
    middle = sum(weights[name] * _mean(rows, 0.0) for name, rows in voices.items()) / (total + DOUBT)
    square = sum(weights[name] * _mean(rows, middle, power=2) for name, rows in voices.items()) / total
    return Learned(middle, total, math.sqrt(square))


def hear(
    lessons: Sequence[Lesson],
    plan: Plan,
    mode: str,
    step: Signature,
    known: dict[int, float],
    kinds: Mapping[str, Hashable],
) -> Voices:
    """What of the lessons is like enough to this step. kinds: as of `learn`."""
    voices: Voices = {}
    kind = kinds.get(plan.device, plan.device)
    for lesson in lessons:
        if kinds.get(lesson.plan.device, lesson.plan.device) != kind or abs(lesson.log_ratio) > MOST_LOG_RATIO:
            continue
        likely = _remembered_likeness(known, step, lesson.signature) * (1.0 if lesson.mode == mode else OTHER_MODE)
        if likely > LEAST_LIKENESS:
            heard = Heard(likely, _same_plan(lesson.plan, plan), lesson.log_ratio)
            voices.setdefault(lesson.workload, []).append(heard)
    return voices


def _remembered_likeness(known: dict[int, float], step: Signature, other: Signature) -> float:
    """Plans of one measurement share a signature."""
    if id(other) not in known:
        known[id(other)] = likeness(step, other)
    return known[id(other)]


def _same_plan(one: Plan, other: Plan) -> float:
    threads = 1.0 if one.threads == other.threads else OTHER_THREADS
    return threads * (1.0 if one.precision == other.precision else OTHER_PRECISION)


def _mean(rows: Sequence[Heard], middle: float, power: int = 1) -> float:
    weighted = sum(row.weight * (row.log_ratio - middle) ** power for row in rows)
    return weighted / sum(row.weight for row in rows)


@dataclass
class Experience:
    """Lessons of like workloads, for one trace at any batch. kinds: as of `learn`."""

    lessons: Sequence[Lesson]
    trace: Trace
    kinds: Mapping[str, Hashable] = field(default_factory=dict)
    _knots: dict[tuple[object, ...], Learned] = field(default_factory=dict)
    _steps: dict[int, tuple[Signature | None, dict[int, float]]] = field(default_factory=dict)

    @property
    def workloads(self) -> int:
        return len({lesson.workload for lesson in self.lessons})

    def at(self, plan: Plan, batch_size: int) -> Learned:
        place = math.log(batch_size, KNOT)
        below = math.floor(place)
        share = place - below
        before, after = self._knot(plan, below), self._knot(plan, below + 1)
        return Learned(
            *(low + share * (high - low) for low, high in zip(_numbers(before), _numbers(after), strict=True))
        )

    def voices(self, plan: Plan, batch_size: int) -> Voices:
        """Those worth telling of, at the nearest of the batch sizes between which `at` goes in a straight line."""
        step, known = self._step(round(math.log(batch_size, KNOT)))
        heard = {} if step is None else hear(self.lessons, plan, self.trace.mode, step, known, self.kinds)
        least = TELLING * max((row.likeness for rows in heard.values() for row in rows), default=0.0)
        told = {name: [row for row in rows if row.likeness >= least] for name, rows in heard.items()}
        return {name: rows for name, rows in told.items() if rows}

    def _knot(self, plan: Plan, power: int) -> Learned:
        key = (plan.key, power)
        if key not in self._knots:
            step, known = self._step(power)
            found = NOTHING if step is None else learn(self.lessons, plan, self.trace.mode, step, known, self.kinds)
            self._knots[key] = found
        return self._knots[key]

    def _step(self, power: int) -> tuple[Signature | None, dict[int, float]]:
        """The step at this power's batch, with the likenesses to it that are known."""
        if power not in self._steps:
            self._steps[power] = (signature_of(self.trace, KNOT**power), {})
        return self._steps[power]


def _numbers(learned: Learned) -> tuple[float, float, float]:
    return learned.log_ratio, learned.weight, learned.scatter
