"""What other workloads taught: kept where they were measured, priced by today's profile, found again for a like one."""

from __future__ import annotations

import asyncio
import functools
import math
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version

from app.advisor.environments import is_variant
from app.advisor.like_cards import same_kinds
from app.advisor.time_model.experience import KNOT, Experience, Lesson
from app.advisor.time_model.likeness import likeness
from app.advisor.time_model.predicted import predict
from app.fitted_thread import in_fitted_thread
from app.keeping import trouble_with, unless_unreadable
from app.store import Store
from app.store.lessons import LessonRow
from app.store.store import workload_key
from app.traces import cpu_of
from probes.hardware import Survey
from probes.measurement import Measurement
from probes.profile import Profile
from probes.signature import Signature, signature_of
from probes.trace import Trace
from probes.workload.description import Workload

# The workloads most like the one asked for; what the others add is less than a reading of their traces costs.
MOST_WORKLOADS = 12
LEAST_LIKENESS = 0.02
# Where others held as much as this of the cores that a plan needs, or the steps had not settled, the time says more of
# the moment.
TAKEN_CORES, LEAST_SAMPLES = 0.3, 4
REMEMBERED = 64


class Lessons:
    """Nothing is learned, nor taken into account, where the settings say so."""

    def __init__(self, store: Store, *, enabled: bool = True) -> None:
        self._store = store
        self._enabled = enabled
        self._rows: tuple[object, list[LessonRow]] = (None, [])
        self._known: OrderedDict[object, Experience] = OrderedDict()

    async def keep(
        self,
        survey: Survey,
        profile: Profile | None,
        trace: Trace | None,
        workload: Workload,
        measurements: Sequence[Measurement],
    ) -> None:
        """Of a workload whose trace is known; what cannot be kept can be measured again."""
        if not self._enabled or trace is None or not survey.fingerprint:
            return
        cores = survey.cpu.logical_cores or survey.cpu.usable_cores  # others are counted on all of the machine
        rows = await in_fitted_thread(profile, lessons_of, profile, trace, workload, measurements, cores)
        if rows:
            await trouble_with(self._store.keep_lessons(survey.fingerprint, rows))

    async def like(
        self, survey: Survey, profile: Profile | None, trace: Trace | None, workload: Workload
    ) -> Experience | None:
        """What workloads like this one took here beyond what this machine's profile foretells; None: nothing known."""
        if not self._enabled or profile is None or trace is None or profile.fingerprint != survey.fingerprint:
            return None
        rows = await self._read(survey.fingerprint)
        if not rows:
            return None
        size = nearest_knot(workload.batch_size)
        kinds = same_kinds(survey)
        key = (self._rows[0], id(trace), workload_key(workload), size, _named(profile), tuple(kinds.items()))
        found = self._known.pop(key, None)
        if found is None or found.trace is not trace:
            own = workload_key(workload)  # whose own measurements say more than that they are like
            others = [row for row in rows if row.workload_key != own]
            nearest = await asyncio.to_thread(most_like, others, trace, size)
            found = Experience(await self._priced(cpu_of(survey), profile, nearest), trace, kinds)
        self._known[key] = found
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return found if found.lessons else None

    async def _read(self, fingerprint: str) -> list[LessonRow]:
        stamp = (fingerprint, await unless_unreadable(self._store.lessons_stamp(fingerprint)))
        if stamp != self._rows[0]:
            self._rows = (stamp, await unless_unreadable(self._store.lessons(fingerprint)) or [])
        return self._rows[1]

    async def _priced(self, cpu: str, profile: Profile, rows: Sequence[LessonRow]) -> tuple[Lesson, ...]:
        """Those that were priced by another profile are priced anew, once. cpu: whose traces tell of these steps."""
        stale = [row for row in rows if row.predicted_by != _named(profile)]
        fresh: dict[int, LessonRow] = {}
        for trace_key in dict.fromkeys(row.trace_key for row in stale):
            trace = await unless_unreadable(self._store.trace_of(trace_key, cpu))
            if trace is not None:
                mine = [row for row in stale if row.trace_key == trace_key]
                fresh.update(await in_fitted_thread(profile, _priced_anew, profile, trace, mine))
        if fresh:
            self._rows = (self._rows[0], [fresh.get(row.number, row) for row in self._rows[1]])
            await trouble_with(self._store.note_predictions(tuple(fresh.values())))
        priced = (fresh.get(row.number, row) for row in rows)
        named = [row for row in priced if row.predicted_by == _named(profile)]  # of the others no trace is left
        return tuple(lesson for row in named if (lesson := lesson_of(row)) is not None)


def lessons_of(
    profile: Profile | None,
    trace: Trace,
    workload: Workload,
    measurements: Iterable[Measurement],
    cores: float | None = None,
) -> list[LessonRow]:
    """Of plain plans that ran undisturbed; none of a model that its owner had compiled, whose steps take other times
    than others' of the same operations. cores: of the machine whose others are counted; None: not known, so that
    any core taken counts. A device's are priced later where the trace was made for CPUs alone."""
    if trace.compiled:
        return []
    signatures: dict[int, Signature | None] = {}
    rows = []
    for item in measurements:
        if not _tells(item, cores):
            continue
        size = item.batch_size
        signature = signatures.setdefault(size, signature_of(trace, size))
        if signature is not None and item.step is not None:
            made = LessonRow(
                workload_key(workload),
                (workload.model.key, workload.mode, workload.stepped_by, trace.torch_version),
                workload.readings_every,
                item.plan,
                item.data,
                size,
                item.step.median,
                signature,
                None,
                "",
            )
            rows.append(_foretold(profile, trace, made) if profile is not None and _tells_of(trace, made) else made)
    return rows


def _tells(item: Measurement, cores: float | None) -> bool:
    step = item.step
    if item.outcome != "ok" or step is None or is_variant(item.plan):
        return False
    if _taken_cores(item, cores) >= TAKEN_CORES:
        return False
    if item.is_reckoned or item.is_unsteady or item.met_others:
        return False
    return math.isfinite(step.median) and step.median > 0 and (item.steady or len(step.samples) >= LEAST_SAMPLES)


def _taken_cores(item: Measurement, cores: float | None) -> float:
    """Of the cores that the plan needs, those that others held."""
    free = 0.0 if cores is None else max(0.0, cores - (item.plan.threads or 1))
    return (item.others_cores or 0.0) - free


def nearest_knot(batch_size: int) -> int:
    """So that a model asked about at many batch sizes is compared with others at a few."""
    return int(KNOT ** round(math.log(batch_size, KNOT)))


def most_like(rows: Sequence[LessonRow], trace: Trace, batch_size: int) -> list[LessonRow]:
    """All rows of the workloads that come nearest."""
    step = signature_of(trace, batch_size)
    if step is None:
        return []
    alike: dict[int, float] = {}
    best: dict[str, float] = {}
    for row in rows:
        if id(row.signature) not in alike:
            alike[id(row.signature)] = likeness(step, row.signature)
        best[row.workload_key] = max(best.get(row.workload_key, 0.0), alike[id(row.signature)])
    near = sorted((key for key in best if best[key] >= LEAST_LIKENESS), key=lambda key: -best[key])
    chosen = frozenset(near[:MOST_WORKLOADS])
    return [row for row in rows if row.workload_key in chosen]


def _priced_anew(profile: Profile, trace: Trace, rows: Sequence[LessonRow]) -> dict[int, LessonRow]:
    """By number, those that this trace tells of."""
    return {row.number: _foretold(profile, trace, row) for row in rows if _tells_of(trace, row)}


def _tells_of(trace: Trace, row: LessonRow) -> bool:
    """A device's step is another one, of which a trace that was made for CPUs alone says nothing."""
    return row.plan.is_cpu or trace.devices


def _foretold(profile: Profile, trace: Trace, row: LessonRow) -> LessonRow:
    found = predict(profile, row.plan, trace, row.log_every)
    told = None if found is None else found.at(row.batch_size, row.data)
    return replace(row, predicted=None if told is None else told.median, predicted_by=_named(profile))


def lesson_of(row: LessonRow) -> Lesson | None:
    if row.predicted is None or not (math.isfinite(row.predicted) and row.predicted > 0):
        return None
    ratio = math.log(row.seconds / row.predicted)
    return Lesson(row.workload_key, row.mode, row.plan, row.signature, ratio) if math.isfinite(ratio) else None


def _named(profile: Profile) -> str:
    """The profile and the program that foretell: a later one of either foretells otherwise."""
    made_of = f"{profile.created_at} {profile.calibrations} {profile.method}"
    return f"{profile.fingerprint} {made_of} {program_version()}"


@functools.cache
def program_version() -> str:
    try:
        return version("crosspoint")
    except PackageNotFoundError:
        return "unknown"
