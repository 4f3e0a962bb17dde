"""One recommendation in the making: gather what is known, measure what may be measured, let the advisor decide."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from app import advisor, labjobs
from app.advisor.environments import gain_of
from app.advisor.explanations.environment_reason import explain_installed
from app.advisor.explanations.outdated import explain_outdated
from app.advisor.explanations.unknown_cards import explain_unknown_cards
from app.advisor.known import gather
from app.advisor.plans import candidate_plans, unknown_cards
from app.advisor.probing import LEAST_SECONDS, choose_probe
from app.advisor.recommendation import Reason, Recommendation
from app.advisor.request import Request
from app.advisor.second_look import choose_second_look, quicker_than_before
from app.apart import may_run_apart, start_options
from app.environments import Trial, affordable, compiling_may_pay, seconds_kept_back, trial_of, variants_of
from app.errors import LabError
from app.grounds import Grounds
from app.keeping import Kept, OnProgress, RunJob, forward_progress, say_waiting, unless_unreadable
from app.lab import Ticket
from app.lab.child import Child
from app.lab.tracer import TRACE_SECONDS
from app.measurable import check_outcome
from app.measuring_time import (
    LEAST_PATIENCE_SECONDS,
    LEAST_SHARE,
    START_SECONDS,
    contest_seconds,
    expected_seconds,
    fitting_plans,
    options_of,
    seconds_left,
)
from app.store.latest import latest_of
from probes.allocators import read_allocators
from probes.hardware import Load, Survey
from probes.load import SHORTEST_SECONDS
from probes.measurement import Measurement
from probes.profile import Profile
from probes.reading import Root
from probes.trace import Trace
from probes.workload.description import Plan

if TYPE_CHECKING:
    from app.service import Crosspoint

T = TypeVar("T")
log = logging.getLogger(__name__)

# The code of the reason that says that something was not saved.
NOT_SAVED = "not-saved"
# A trace that cannot be had: steps may be run all the same.
_UNTRACEABLE = frozenset({"unsupported", "too-slow", "failed"})
# What the user has to mend; the answer would be of no use without it.
_USERS_TO_MEND = frozenset({"invalid-job", "invalid-model", "unsupported"})


class Recommending:
    """Use `answer` once; `grounds` are its own from then on."""

    def __init__(
        self, crosspoint: Crosspoint, request: Request, on_progress: OnProgress, ticket: Ticket | None
    ) -> None:
        self._crosspoint = crosspoint
        self._request = request
        self._on_progress = on_progress
        self._ticket = ticket
        self._notes: list[Reason] = []
        self._fresh: list[Measurement] = []
        self._load: Load | None = None  # while real steps ran
        self._paces: Mapping[int, float] = {}
        self._untraceable: LabError | None = None
        self._unmeasured: LabError | None = None
        self._devices = False  # whether any plan is a device's
        self.grounds: Grounds | None = None

    async def answer(self) -> Recommendation:
        """Raises InvalidRequest, LabError, LabBusy, UnknownProfile, and StoreError where nobody can look that up."""
        try:
            survey = self._crosspoint.apart_from_ours(await self._survey())
            profile = await self._crosspoint.profile(survey, self._request.profile)
            await self._note_outdated(survey, profile)
            here = profile is None or profile.fingerprint == survey.fingerprint
            plans = candidate_plans(survey, self._request) if here else ()
            self._paces = profile.paces if profile is not None and here else {}
            trace = await self._trace_and_measure(survey, profile, plans)
            if self._untraceable is not None:
                await self._go_without_trace(survey, self._untraceable, here=here)
            answer = await self._decide(await self._with_load(survey), profile, trace)
        finally:
            if self._ticket is not None:
                self._crosspoint.lab.release(self._ticket)
        return replace(answer, reasons=(*answer.reasons, *self._notes))

    async def _trace_and_measure(
        self, survey: Survey, profile: Profile | None, plans: tuple[Plan, ...]
    ) -> Trace | None:
        asked = plans or (() if profile is None else tuple(point.plan for point in profile.points))
        self._devices = any(not plan.is_cpu for plan in asked)
        if self._request.workload.model.kind == "summary":
            self._note_unmeasurable("a summary has no layers that could run")
            return None
        if not self._crosspoint.is_here:
            self._note_unmeasurable("a captured machine can only be read")
        elif profile is not None and profile.fingerprint != survey.fingerprint:
            self._note_unmeasurable("the profile asked for is another machine's")
        elif self._request.effort != "instant":
            return await self._measure(survey, profile, plans)
        return await self._trace_if_possible(survey)

    async def _measure(self, survey: Survey, profile: Profile | None, plans: tuple[Plan, ...]) -> Trace | None:
        """Measure in a fresh process, which also traces when no other process is warm for that. The machine's slot is
        taken once a trace is there that the warm one makes: others may measure meanwhile."""
        lab = self._crosspoint.lab
        if self._ticket is None:
            lab.check_room()
        trace = await self._known_trace(survey)
        if trace is None and lab.tracer_is_warm:
            trace = await self._trace_if_possible(survey)
        self._ticket = ticket = self._ticket or lab.reserve(START_SECONDS + self._request.measuring_seconds)
        ticket.on_wait = say_waiting(self._on_progress)
        ticket.patience_seconds = max(LEAST_PATIENCE_SECONDS, self._request.measuring_seconds)
        try:
            options = start_options(self._request.workload) if any(plan.is_cpu for plan in plans) else ()
            async with lab.session(ticket, options) as first, contextlib.AsyncExitStack() as stack:
                child = first
                if trace is None and self._untraceable is None:
                    trace = await self._trace_if_possible(survey, lambda job: first.run(job, TRACE_SECONDS))
                    if not first.alive:  # the trace took too long, or ended its process
                        child = await stack.enter_async_context(lab.another({}, options))
                estimate = await self._decide(survey, profile, trace)
                fitting = fitting_plans(estimate, plans)
                if fitting:
                    kept_back = await self._kept_back(child, survey, profile, trace) if trace else 0.0
                    left, least = self._seconds_left(ticket), LEAST_SHARE * self._request.measuring_seconds
                    seconds = max(left - kept_back, least)
                    enough = contest_seconds(estimate, fitting, seconds)
                    apart = may_run_apart(options_of(estimate, fitting), enough)
                    expected = expected_seconds(estimate, fitting)
                    await self._run_plans(child, survey, fitting, seconds, enough, expected, apart=apart)
                    await self._probe(child, survey, profile, trace, self._seconds_left(ticket) - kept_back)
                    await child.end()  # its memory is wanted
                    if trace and kept_back:
                        await self._try_variants(survey, profile, trace, ticket, child.start_seconds)
        except LabError as error:
            if (trace is None and ticket.running and not self._untraceable) or error.code in _USERS_TO_MEND:
                raise
            self._unmeasured = error
            failed = "The measurement failed" if ticket.running else "Nothing was measured"
            text = f"{failed}, so this is an estimate. {error}"
            self._notes.append(Reason("not-measured", text, {"possible": True}))
        return trace or (None if self._untraceable else await self._trace_if_possible(survey))

    async def _run_plans(
        self,
        child: Child,
        survey: Survey,
        plans: list[Plan],
        seconds: float,
        enough: float,
        expected: Sequence[float | None],
        *,
        apart: bool,
    ) -> None:
        """Every plan at the batch asked for. enough: of the seconds, where all plans have samples by then."""
        sizes = (self._request.workload.batch_size,)
        noise = await self._run_steps(child, survey, plans, sizes, seconds, enough, expected, apart=apart)
        self._load = labjobs.load_meanwhile(survey, noise)

    async def _probe(
        self, child: Child, survey: Survey, profile: Profile | None, trace: Trace | None, seconds: float
    ) -> None:
        """Some plans at other batches, one batch after the other, each chosen by what is known by then, with the time
        that is left, and once more what nothing else bears out; a failure costs the answer nothing."""
        end, tried, twice = time.monotonic() + seconds, list[int](), set[int]()
        while (left := end - time.monotonic()) >= LEAST_SECONDS:
            known = await self._known(survey)
            gathered = await asyncio.to_thread(gather, survey, profile, trace, known, self._request)
            once = [row.batch_size for row in self._fresh if row.batch_size not in twice]
            again = await asyncio.to_thread(choose_second_look, gathered, left, dict.fromkeys(once))
            probe = again or await asyncio.to_thread(choose_probe, gathered, left, tried)
            if probe is None:
                return
            tried.append(probe.batch_size)
            if again is not None:
                twice.add(again.batch_size)
            there = [option for option in gathered.options(probe.batch_size) if option.plan in probe.plans]
            apart = may_run_apart(there, probe.seconds)
            try:
                await self._run_steps(
                    child, survey, probe.plans, (probe.batch_size,), probe.seconds, apart=apart, again=again is not None
                )
            except LabError as error:
                log.info("Batch %d was not measured to its end: %s", probe.batch_size, error)
                return

    async def _run_steps(
        self,
        child: Child,
        survey: Survey,
        plans: Sequence[Plan],
        sizes: Sequence[int],
        seconds: float,
        enough: float | None = None,
        expected: Sequence[float | None] = (),
        *,
        apart: bool,
        again: bool = False,
    ) -> dict[str, Any]:
        """Real steps, kept; gives the noise that they met. again: only what is quicker than before is kept."""
        workload = self._request.workload
        job = labjobs.measure_job(
            survey, workload, plans, sizes, seconds, enough=enough, apart=apart, expected=expected, paces=self._paces
        )
        result = await child.run(job, self._crosspoint.lab.deadline(seconds), forward_progress(self._on_progress))
        if again:
            result = {**result, "measurements": quicker_than_before(result["measurements"], self._fresh)}
        kept = await self._crosspoint.keep_measurements(survey, workload, result)
        self._fresh = [*self._fresh, *self._note_trouble(kept)]
        return result.get("noise") or {}

    def _seconds_left(self, ticket: Ticket) -> float:
        return seconds_left(self._request.measuring_seconds, time.monotonic() - (ticket.started_at or 0.0))

    async def _kept_back(self, child: Child, survey: Survey, profile: Profile | None, trace: Trace) -> float:
        """Seconds to keep for trying variants of the best plan: where it is one for the CPU, and the time does for
        both."""
        if self._request.effort != "thorough":
            return 0.0
        estimate = await self._decide(survey, profile, trace)
        if not all(option.plan.is_cpu for option in estimate.options if option.fits is not False):
            return 0.0
        compiling = await asyncio.to_thread(compiling_may_pay, estimate, trace)
        return seconds_kept_back(self._request.measuring_seconds, child.start_seconds, compiling=compiling)

    async def _try_variants(
        self, survey: Survey, profile: Profile | None, trace: Trace, ticket: Ticket, start_seconds: float
    ) -> None:
        """Measure what may make the best plan faster. Where that fails the answer is as good as before."""
        answer = await self._decide(await self._with_load(survey), profile, trace)
        variants = await asyncio.to_thread(variants_of, answer, trace, self._fresh)
        while tries := affordable(variants, self._seconds_left(ticket), start_seconds):
            plan, seconds = tries[0]
            workload = self._request.workload
            trial = trial_of(self._crosspoint.lab, survey, workload, answer, seconds, self._on_progress, plan)
            if trial is not None:
                await self._try_one(survey, trial)
            variants = variants[variants.index(plan) + 1 :]

    async def _try_one(self, survey: Survey, trial: Trial) -> None:
        try:
            found = await trial.run()
        except LabError as error:
            log.info("A variant was not tried to its end: %s", error)
            return
        if found is not None:
            await self._note_allocators(found)
            document = {"measurements": [found.to_json()]}
            kept = await self._crosspoint.keep_measurements(survey, self._request.workload, document)
            self._fresh = [*self._fresh, *self._note_trouble(kept)]

    async def _note_allocators(self, found: Measurement) -> None:
        gain = gain_of(found)
        matters = gain is not None and gain.pays and bool(found.plan.environment)
        installed = await asyncio.to_thread(read_allocators, Root()) if matters else ()
        if installed:
            self._notes.append(explain_installed(installed))

    async def _trace(self, survey: Survey, run: RunJob | None = None) -> Trace:
        self._on_progress(0.0, "tracing the model")
        made = await self._crosspoint.new_trace(
            survey, self._request.workload, run, devices=self._devices, seconds=TRACE_SECONDS
        )
        return self._note_trouble(made)

    async def _known_trace(self, survey: Survey) -> Trace | None:
        return await self._crosspoint.known_trace(survey, self._request.workload, devices=self._devices)

    async def _trace_if_possible(self, survey: Survey, run: RunJob | None = None) -> Trace | None:
        """The one that is kept, somebody's of meanwhile too; else by whichever process `run` speaks to, else the lab's.
        None where the model's step may be run, not followed. Raises LabError."""
        known = await self._known_trace(survey)
        self._untraceable = None if known else await self._refusal(survey)
        if known or self._untraceable:
            return known
        try:
            return await self._trace(survey, run)
        except LabError as error:
            if error.code not in _UNTRACEABLE:
                raise
            self._untraceable = error
        return None

    async def _refusal(self, survey: Survey) -> LabError | None:
        """Of an earlier try to trace it, where steps tell instead (they run now, or have run before), or where no try
        will bring one."""
        refusal = self._crosspoint.trace_refusal(survey, self._request.workload, TRACE_SECONDS, devices=self._devices)
        if refusal is None or self._request.effort != "instant" or refusal.code == "unsupported":
            return refusal
        return refusal if any(row.outcome == "ok" for row in await self._known(survey)) else None

    async def _go_without_trace(self, survey: Survey, untraceable: LabError, *, here: bool) -> None:
        """Raises LabError where nothing was measured either."""
        known = await self._known(survey) if here else []
        if all(item.outcome != "ok" for item in known):
            if self._fresh:
                check_outcome(self._fresh)
            raise self._unmeasured or untraceable
        why = "This model's operations cannot be followed without running it"
        if untraceable.code != "unsupported":
            why = f"This model was not traced ({str(untraceable).partition('. ')[0].rstrip('.')})"
        text = f"{why}: only what was measured here is known."
        self._notes.append(Reason("not-traced", text))

    async def _decide(self, survey: Survey, profile: Profile | None, trace: Trace | None) -> Recommendation:
        """The advisor's answer from all that is known now; in a thread, for it computes for some milliseconds."""
        here = profile is None or profile.fingerprint == survey.fingerprint
        known = await self._known(survey) if here else []
        experience = await self._crosspoint.lessons.like(survey, profile, trace, self._request.workload)
        captured = not self._crosspoint.is_here
        self.grounds = Grounds(survey, profile, trace, known, experience, captured)
        found = (survey, profile, trace, known, self._request, experience)
        return await asyncio.to_thread(advisor.recommend, *found, captured=captured)

    async def _known(self, survey: Survey) -> list[Measurement]:
        """What was measured of this workload here, before and now."""
        stored = await self._crosspoint.measurements(survey, self._request.workload)
        return latest_of([*stored, *self._fresh])  # what is fresh is stored as well, unless nothing could be saved

    async def _with_load(self, survey: Survey) -> Survey:
        """The survey with the newest that is known of the load: a process's first reading has no fractions, and an
        answer from what is known may come before there can be another."""
        if self._load is not None:
            return replace(survey, load=self._load)
        if survey.load.busy_fraction is not None or not self._crosspoint.is_here:
            return survey
        load = (await self._crosspoint.survey()).load
        if load.busy_fraction is None and not self._crosspoint.waited_for_load:
            self._crosspoint.waited_for_load = True  # where none comes of it, this machine does not tell
            await asyncio.sleep(SHORTEST_SECONDS)
            load = (await self._crosspoint.survey(fresh=True)).load
        return replace(survey, load=load)

    async def _note_outdated(self, survey: Survey, profile: Profile | None) -> None:
        """Say that the machine has changed since it was calibrated, where that is why it has no profile."""
        if profile is None and survey.fingerprint:
            old = await unless_unreadable(self._crosspoint.store.outdated_profile(survey.fingerprint))
            if old is not None:
                self._notes.append(explain_outdated(old, survey))

    async def _survey(self) -> Survey:
        """With torch's word on this machine's cards, where the answer may be a plan for one of them."""
        survey, request = await self._crosspoint.survey(), self._request
        if request.devices and all(device == "cpu" for device in request.devices):
            return survey
        if request.profile is not None:
            asked = await self._crosspoint.profile(survey, request.profile)
            if asked is not None and asked.fingerprint != survey.fingerprint:
                return survey
        survey = await self._crosspoint.survey_for_plans(self._on_progress)
        if self._crosspoint.is_here and unknown_cards(survey):
            self._notes.append(explain_unknown_cards(survey, self._crosspoint.torch_trouble))
        return survey

    def _note_unmeasurable(self, why: str) -> None:
        if self._request.effort != "instant":
            self._notes.append(Reason("not-measured", f"Nothing was measured: {why}.", {"possible": False}))

    def _note_trouble(self, kept: Kept[T]) -> T:
        """The value; that it was not saved becomes a reason, once."""
        if kept.trouble is not None and all(note.code != NOT_SAVED for note in self._notes):
            self._notes.append(Reason(NOT_SAVED, kept.trouble))
        return kept.value
