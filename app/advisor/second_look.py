"""Where a plan took far longer than the others' steps bear out, it is worth another look before anything rests on it.

A machine that is shared has seconds in which two threads take twice as long as before and after, with nothing to see
in how quick the cores are. What a model's prediction is off by it is off by under every plan in much the same way: a
plan that alone is off by far more met such seconds, or is told wrong, and a second turn tells which.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from app.advisor.environments import is_variant
from app.advisor.known import Known
from app.advisor.probing import Probe, Probing
from app.advisor.time_model.fitting import Step, ratio_spread
from app.advisor.time_model.measured import disproves
from app.advisor.time_model.step_time import PlanTime
from probes.measurement import Measurement

# So many times the spread that four in five of such ratios keep within: one in a hundred is beyond it by chance.
SURPRISING = 2.0
# So many times the quickest plan's step: what would be slower were it borne out could not be named, nor cross another.
HOPELESS = 1.3
# But what is so many times as long as borne out, with samples that lie as far apart, is wrong wherever it is carried.
GROSS = 5.0
Key = tuple[object, ...]
Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SecondLook(Probe):
    """surprising: those of its plans that took too long; the others are what they are judged by."""

    surprising: frozenset[Key]


class Surprise(NamedTuple):
    """judge: the plan whose step does not bear it out. seconds: of a step, were it borne out. unsteady: some of its
    samples say that it may be. gross: far beyond what calibrations err by, and not to be believed of any batch."""

    judge: Key
    seconds: float
    unsteady: bool
    gross: bool


def choose_second_look(
    known: Known,
    seconds: float,
    sizes: Collection[int],
    to_begin_seconds: float = 0.0,
    before: Collection[int] = (),
) -> SecondLook | None:
    """At the first of these batch sizes, which ran just now, where plans took longer than others bear out: these plans
    again, beside those that they are judged by; where the seconds do not do for all, those whose steps should be the
    shortest. None where there are none, or the seconds do for none. to_begin_seconds: see Probing. before: sizes that
    ran earlier, where only what took grossly longer is worth it."""
    for size in (*sizes, *(size for size in before if size not in sizes)):
        surprises = surprising(known.times, size, known.workload.data)
        shortest = sorted(surprises, key=lambda key: surprises[key].seconds)
        wanted = [key for key in shortest if size in sizes or surprises[key].gross]
        for count in range(len(wanted), 0, -1):
            look = _look(known, seconds, size, {key: surprises[key] for key in wanted[:count]}, to_begin_seconds)
            if look is not None:
                return look
    return None


def _look(
    known: Known, seconds: float, size: int, surprises: Mapping[Key, Surprise], to_begin_seconds: float
) -> SecondLook | None:
    """What took too long by some samples alone should take what is borne out: by what it took, the worse a spell was
    the less it would be looked at again."""
    keys = {*surprises, *(surprise.judge for surprise in surprises.values())}
    there = [option for option in known.options(size) if option.plan.key in keys]
    expected = {key: surprise.seconds for key, surprise in surprises.items() if surprise.unsteady}
    look = Probing(known, there, (), size, to_begin_seconds, expected)
    has_no_room = any(option.fits is False for option in there)  # by now, where it ran earlier
    if not there or has_no_room or look.seconds > seconds:
        return None
    plans = tuple(option.plan for option in there)
    return SecondLook(plans, size, min(look.seconds_apart, seconds), frozenset(surprises))


def surprising(times: Mapping[Key, PlanTime], size: int, data: str) -> dict[Key, Surprise]:
    """The plans that took longer at this batch than another's step bears out, and could win if it were borne out or are
    grossly wrong; empty where there are none, as on a device, of whose plans nobody knows what they err by together."""
    # A variant's time is a share of its plan's, and would be too long with it.
    took = {
        key: seconds
        for key, time in times.items()
        if not is_variant(time.plan) and (seconds := _took(time, size)) is not None
    }
    off = {key: log_ratio for key in took if (log_ratio := _off(times[key], took[key], size, data)) is not None}
    found: dict[Key, Surprise] = {}
    for key, mine in off.items():
        surprises = {other: _surprise(mine - theirs, times[key], times[other]) for other, theirs in off.items()}
        judge = max(surprises, key=lambda other: surprises[other])
        borne_out = took[key] * math.exp(off[judge] - mine)
        unsteady = _is_unsteady(times[key], size)
        gross = unsteady and took[key] > GROSS * borne_out
        if surprises[judge] > SURPRISING and (gross or borne_out <= HOPELESS * min(took.values())):
            found[key] = Surprise(judge, borne_out, unsteady, gross)
    return found


def _is_unsteady(time: PlanTime, size: int) -> bool:
    """And nobody is known to hold its cores now, who would make it so again."""
    row, crowd = time.nearest_row(size), time.crowd
    is_crowded = crowd is not None and crowd.exposure(time.plan) > 0
    return row is not None and row.is_unsteady and not is_crowded


def better_than_before(
    rows: Sequence[Document], before: Sequence[Measurement], surprising: Collection[Key]
) -> list[Document]:
    """Of a second look's measurements, those that say more than what stands: of the plans that took too long what took
    less, for what took longer met others, as it may have before; and of any plan what met calm cores where what stands
    met none, or disproves it. What plans are judged by is not told by the luckier of two turns, as the others have
    one."""
    stands = {(row.plan.key, row.batch_size): row for row in before if row.step is not None}
    found = []
    for document in rows:
        row = Measurement.from_json(document)
        if _says_more(row, stands.get((row.plan.key, row.batch_size)), may_be_quicker=row.plan.key in surprising):
            found.append(document)
    return found


def _says_more(row: Measurement, stands: Measurement | None, *, may_be_quicker: bool) -> bool:
    if row.step is None or stands is None or stands.step is None:
        return row.step is not None
    if row.is_reckoned != stands.is_reckoned:
        return stands.is_reckoned or disproves(row, stands)
    return may_be_quicker and row.step.median < stands.step.median


def _surprise(difference: float, one: PlanTime, other: PlanTime) -> float:
    """In spreads of the ratio of two plans' errors; 0 where that is not known."""
    spread = ratio_spread(_left_out(one), _left_out(other))
    return 0.0 if spread is None else difference / spread


def _took(time: PlanTime, size: int) -> float | None:
    """Seconds of a step on the CPU, where it ran at this very batch."""
    ran = None if time.measured is None or not time.plan.is_cpu else time.measured.measured(size)
    return None if ran is None else ran.median


def _off(time: PlanTime, took: float, size: int, data: str) -> float | None:
    """The logarithm of what a step took over what it was predicted to take."""
    told = None if time.predicted is None else time.predicted.at(size, data)
    return None if told is None else math.log(took / told.median)


def _left_out(time: PlanTime) -> Mapping[Step, float]:
    return {} if time.predicted is None else time.predicted.model.fit.left_out
