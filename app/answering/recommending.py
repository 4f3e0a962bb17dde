"""One recommendation in the making: gather what is known, measure what may be measured, let the advisor decide."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from app import advisor
from app.advisor.explanations.outdated import explain_outdated
from app.advisor.explanations.slower_machine import explain_slower
from app.advisor.explanations.unknown_cards import explain_captured_cards, explain_unknown_cards
from app.advisor.like_cards import one_of_each_kind
from app.advisor.plans import candidate_plans, must_ask_torch
from app.advisor.recommendation import Reason, Recommendation
from app.advisor.request import Request
from app.answering.answer_notes import AnswerNotes
from app.answering.apart import start_options
from app.answering.following import Following
from app.answering.grounds import Grounds
from app.answering.lasting_paces import paces_now
from app.answering.measuring_time import (
    ENDING_SECONDS,
    LEAST_PATIENCE_SECONDS,
    LEAST_SHARE,
    START_SECONDS,
    fitting_plans,
    seconds_left,
)
from app.answering.real_steps import RealSteps, StartChild
from app.answering.survey_at_turn import SurveyAtTurn
from app.answering.trial_time import preparing_seconds
from app.errors import LabError
from app.fitted_thread import in_fitted_thread
from app.keeping import OnProgress, say_waiting, unless_unreadable
from app.lab import Lab, Ticket
from app.lab.child import Child
from app.lab.child_endings import NOT_RETURNED
from app.measurable import check_outcome, check_surveyed
from probes.hardware import Survey
from probes.load import SHORTEST_SECONDS
from probes.measurement import Measurement
from probes.profile import Profile
from probes.trace import Trace
from probes.workload.description import Plan

if TYPE_CHECKING:
    from app.service import Crosspoint

OF_BEFORE = "the profile asked for is this machine's from before it changed"
_MEASURED = "effort quick"  # stands in what advises to measure (probes.microtrain.traces)
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
        self._notes = AnswerNotes()
        self._steps = RealSteps(crosspoint, request, on_progress, self._notes)
        self._following = Following(crosspoint, request, on_progress, self._notes, self._steps)
        self._unmeasured: LabError | None = None
        self._unmeasurable: str | None = None  # why no step of what is asked about can be run here
        self._at_turn: tuple[Survey, Profile | None] | None = None  # of when the machine was this question's
        self.grounds: Grounds | None = None

    async def answer(self) -> Recommendation:
        """Raises InvalidRequest, LabError, LabBusy, UnknownProfile, and StoreError where nobody can look that up."""
        try:
            survey = self._crosspoint.apart_from_ours(await self._survey())
            self._note_unsurveyed(survey)
            profile = await self._crosspoint.profile(survey, self._request.profile)
            here = profile is None or profile.fingerprint == survey.fingerprint
            plans = candidate_plans(survey, self._request) if here else ()
            trace = await self._trace_and_measure(survey, profile, plans)
            survey, profile = self._at_turn or (survey, profile)
            await self._note_outdated(survey, profile)
            await self._note_slower(profile)
            if self._following.untraceable is not None:
                await self._go_without_trace(survey, profile, self._following.untraceable)
            if profile is None or profile.fingerprint == survey.fingerprint:
                survey = await self._with_load(survey)
            answer = await self._decide(survey, profile, trace)
        finally:
            if self._ticket is not None:
                self._crosspoint.lab.release(self._ticket)
        told = answer.reasons
        if profile is None and not survey.fingerprint:  # whether this machine was calibrated is not known
            told = tuple(reason for reason in told if reason.code != "no-calibration")
        return replace(answer, reasons=(*told, *self._notes.reasons))

    async def _trace_and_measure(
        self, survey: Survey, profile: Profile | None, plans: tuple[Plan, ...]
    ) -> Trace | None:
        asked = plans or (() if profile is None else tuple(point.plan for point in profile.points))
        self._following.devices = any(not plan.is_cpu for plan in asked)
        if self._request.workload.model.kind == "summary":
            self._note_unmeasurable("a summary has no layers that could run")
            return None
        if not self._crosspoint.is_here:
            self._note_unmeasurable("a captured machine can only be read")
        elif profile is not None and profile.fingerprint != survey.fingerprint:
            self._following.elsewhere = profile.fingerprint
            self._note_unmeasurable(await self._why_elsewhere(survey, profile))
        elif self._request.effort != "instant":
            return await self._measure(survey, profile, plans)
        return await self._following.trace_if_possible(survey)

    async def _measure(self, survey: Survey, profile: Profile | None, plans: Sequence[Plan]) -> Trace | None:
        """Measure in a fresh process, which also traces when no other process is warm for that. The machine's slot is
        taken once a trace is there that the warm one makes: others may measure meanwhile."""
        lab = self._crosspoint.lab
        self._check_room()
        trace = await self._following.known_trace(survey)
        if trace is None and lab.tracer_is_warm:
            trace = await self._following.trace_if_possible(survey)
        if self._following.is_stuck:
            self._note_stuck()
            return None
        ticket = self._in_line()
        at_turn = SurveyAtTurn(self._crosspoint, ticket, survey)
        try:
            options = start_options(self._request.workload) if any(plan.is_cpu for plan in plans) else ()
            async with lab.session(ticket, options) as first, contextlib.AsyncExitStack() as stack:
                child = first
                another = partial(_another, lab, options, stack)
                survey = await at_turn.survey()
                profile = await self._profile_at_turn(survey, profile)
                self._at_turn = survey, profile
                if trace is None and self._following.untraceable is None:
                    trace = await self._following.trace_if_possible(survey, first)
                    if self._following.is_stuck:
                        self._note_stuck()
                        return None
                    if not first.alive:  # the trace took too long, or ended its process
                        child = await another()
                estimate = await self._decide(survey, profile, trace)
                plans = one_of_each_kind(survey, fitting_plans(estimate, plans), self._request.devices)
                if plans:
                    await self._run_steps(child, another, survey, profile, trace, estimate, plans)
        except LabError as error:
            if (trace is None and ticket.running and not self._following.untraceable) or error.code in _USERS_TO_MEND:
                raise
            self._note_unmeasured(error, ticket)
        return trace or (None if self._following.untraceable else await self._following.trace_if_possible(survey))

    def _check_room(self) -> None:
        """Raises LabBusy where the queue is full, and it has no place in it yet."""
        if self._ticket is None:
            self._crosspoint.lab.check_room(", or use effort instant, which measures nothing")

    def _in_line(self) -> Ticket:
        """With a place among those who wait for the machine, and how long to."""
        self._check_room()  # the queue may have filled while the model was traced
        seconds = self._request.measuring_seconds
        self._ticket = ticket = self._ticket or self._crosspoint.lab.reserve(START_SECONDS + seconds)
        say_waiting(ticket, self._on_progress)
        ticket.patience_seconds = max(LEAST_PATIENCE_SECONDS, START_SECONDS + seconds + ENDING_SECONDS)
        return ticket

    async def _run_steps(
        self,
        child: Child,
        another: StartChild,
        survey: Survey,
        profile: Profile | None,
        trace: Trace | None,
        estimate: Recommendation,
        plans: Sequence[Plan],
    ) -> None:
        """Of these plans at the batch asked for, of some at others, of variants of the best one. estimate: what was
        known before."""
        kept_back = await self._kept_back(child, survey, profile, trace)
        left, least = self.measuring_seconds_left(), LEAST_SHARE * self._request.measuring_seconds
        await self._steps.run_plans(child, survey, estimate, plans, max(left - kept_back, least))
        self._note_failed_steps()
        if kept_back:  # how long steps and building the model take is known by now
            kept_back = min(kept_back, await self._kept_back(child, survey, profile, trace))
        left = self.measuring_seconds_left() - kept_back
        child = await self._steps.probe(child, another, survey, profile, trace, left)
        await child.end()  # its memory is wanted
        if kept_back:
            await self._try_variants(survey, profile, trace, self._start_seconds(child))

    async def _profile_at_turn(self, survey: Survey, before: Profile | None) -> Profile | None:
        """What was waited for may have been this machine's calibration. before: this machine's, too."""
        asked_for = self._request.profile is not None
        profile = before if asked_for else await self._crosspoint.profile(survey) or before
        self._steps.paces = await paces_now(self._crosspoint.store, profile)
        return profile

    def measuring_seconds_left(self) -> float:
        """Of those that measuring may take; all of them where its turn has not come."""
        allowed, ticket = self._request.measuring_seconds, self._ticket
        if ticket is None or ticket.started_at is None:
            return allowed
        return seconds_left(allowed, time.monotonic() - ticket.started_at)

    async def _kept_back(self, child: Child, survey: Survey, profile: Profile | None, trace: Trace | None) -> float:
        """Seconds to keep for trying variants of the best plan: where there is something to try, and the time does for
        both."""
        if self._request.effort != "thorough":
            return 0.0
        estimate = await self._decide(survey, profile, trace)
        return await self._steps.seconds_for_variants(survey, estimate, trace, self._start_seconds(child))

    def _start_seconds(self, child: Child) -> float:
        """Of a process like this one, until it has imported what the model needs."""
        return child.start_seconds + preparing_seconds(self._request.workload)

    async def _try_variants(
        self, survey: Survey, profile: Profile | None, trace: Trace | None, start_seconds: float
    ) -> None:
        """Measure what may make the best plan faster."""
        answer = await self._decide(await self._with_load(survey), profile, trace)
        await self._steps.try_variants(survey, answer, trace, self.measuring_seconds_left, start_seconds)

    async def _why_elsewhere(self, survey: Survey, profile: Profile) -> str:
        """Why real steps of this machine tell nothing of the one that the profile is of."""
        if not survey.fingerprint:
            return "the survey failed, so whether the profile is this machine's is not known"
        was_this = await unless_unreadable(self._crosspoint.store.was_seen(profile.fingerprint))
        return OF_BEFORE if was_this else "the profile asked for is another machine's"

    async def _known(self, survey: Survey, profile: Profile | None) -> list[Measurement]:
        """What was measured of this workload on the machine that is answered for: another one, or this one in another
        state, may have left it in the same store."""
        if profile is None or profile.fingerprint == survey.fingerprint:
            return await self._steps.known(survey)
        return await self._crosspoint.measurements_of(profile.fingerprint, self._request.workload)

    async def _go_without_trace(self, survey: Survey, profile: Profile | None, untraceable: LabError) -> None:
        """Raises LabError where nothing was measured either."""
        known = await self._known(survey, profile)
        if all(item.outcome != "ok" for item in known):
            if self._steps.fresh:
                try:
                    check_outcome(self._steps.fresh)
                except LabError as error:
                    self._unmeasured = error
            raise _both(self._unmeasured, untraceable) if self._unmeasured else self._with_way_out(untraceable)
        why = "This model's operations cannot be followed without running it"
        if untraceable.code != "unsupported":
            why = f"This model was not traced ({str(untraceable).partition('. ')[0].rstrip('.')})"
        text = f"{why}: only what was measured is known."
        self._notes.add(Reason("not-traced", text))

    def _with_way_out(self, untraceable: LabError) -> LabError:
        """It advises to measure the model, which cannot be done where the answer is for a machine that is not here. A
        trace that took too long advises nothing of the kind: whoever made it does not know what is asked. What no step
        of the model could do either, wherever it is asked, has its advice in its own words."""
        text = str(untraceable)
        if NOT_RETURNED in text:
            return untraceable
        if untraceable.code == "too-slow":
            text += self._beside_quiet()
        if self._unmeasurable is None or (untraceable.code == "unsupported" and _MEASURED not in text):
            return LabError(untraceable.code, text, untraceable.retry_after_seconds)
        way_out = "Ask on that machine itself"
        if self._unmeasurable == OF_BEFORE:
            way_out = "Ask without the profile"
        elif self._request.profile is not None and self._crosspoint.is_here:
            way_out += ", or without the profile"
        text += f" For this question nothing can be measured here: {self._unmeasurable}. {way_out}."
        return LabError(untraceable.code, text, untraceable.retry_after_seconds)

    def _beside_quiet(self) -> str:
        """What would do for a model that was not traced in time."""
        own = self._request.workload.model.kind == "python"
        sooner = " Of your own Python a function that returns sooner would do as well." if own else ""
        measured = self._unmeasurable is None and self._request.effort == "instant"
        return sooner + (" Or measure it instead (effort quick)." if measured else "")

    async def _decide(self, survey: Survey, profile: Profile | None, trace: Trace | None) -> Recommendation:
        """The advisor's answer from all that is known now; in a thread, for it computes for some milliseconds."""
        known = await self._known(survey, profile)
        experience = await self._crosspoint.lessons.like(survey, profile, trace, self._request.workload)
        captured, unreadable = not self._crosspoint.is_here, None
        if profile is None:
            unreadable = self._crosspoint.store.unreadable
        self.grounds = Grounds(survey, profile, trace, known, experience, captured, unreadable)
        found = (survey, profile, trace, known, self._request, experience)
        return await in_fitted_thread(profile, advisor.recommend, *found, captured=captured, unreadable=unreadable)

    async def _with_load(self, survey: Survey) -> Survey:
        """The survey with the newest that is known of the load: a process's first reading has no fractions, and an
        answer from what is known may come before there can be another."""
        if self._steps.load is not None:
            return replace(survey, load=self._steps.load)
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
                self._notes.add_first(explain_outdated(old, survey))

    async def _note_slower(self, profile: Profile | None) -> None:
        """Say that what was measured now was judged by slower cores than were calibrated, unless it met quick ones; of
        the numbers of threads that it ran with."""
        ran_with = {row.plan.threads for row in self._steps.fresh if row.plan.is_cpu}
        if profile is None or not ran_with:
            return
        since = await paces_now(self._crosspoint.store, profile)
        paces = {threads: pace for threads, pace in self._steps.paces.items() if threads in ran_with}
        least = {threads: min(pace, since.get(threads, pace)) for threads, pace in paces.items()}
        slower = explain_slower(profile.paces, least)
        if slower is not None:
            self._notes.add(slower)

    async def _survey(self) -> Survey:
        """With torch's word on this machine's cards, where the answer may be a plan for one of them."""
        survey, request = await self._crosspoint.survey_tried_twice(), self._request
        if not survey.fingerprint or (request.devices and all(device == "cpu" for device in request.devices)):
            return survey
        if request.profile is not None:
            asked = await self._crosspoint.profile(survey, request.profile)
            if asked is not None and asked.fingerprint != survey.fingerprint:
                return survey
        survey = await self._crosspoint.survey_for_plans(self._on_progress)
        if self._crosspoint.is_here and must_ask_torch(survey):
            self._notes.add(explain_unknown_cards(survey, self._crosspoint.torch.trouble))
        elif not self._crosspoint.is_here and (captured := explain_captured_cards(survey)) is not None:
            self._notes.add(captured)
        return survey

    def _note_unsurveyed(self, survey: Survey) -> None:
        """Say that the survey failed, where the answer rests on it. Raises LabError where steps would be run by it."""
        if survey.fingerprint or self._request.profile is not None:
            return
        if self._crosspoint.is_here and self._request.effort != "instant":
            check_surveyed(survey)
        text = (
            "The survey failed, so nobody could tell what this machine is: the answer is for one core without cards, "
            "and rests on nothing that was calibrated or measured. `crosspoint hardware` says why."
        )
        self._notes.add(Reason("no-survey", text))

    def _note_unmeasured(self, error: LabError, ticket: Ticket) -> None:
        self._unmeasured = error
        failed = "The measurement failed" if ticket.running else "Nothing was measured"
        text = f"{failed}: this is told from what was known before. {error}"
        self._notes.add(Reason("not-measured", text, {"possible": True}))

    def _note_failed_steps(self) -> None:
        """Where the job went through and no plan did, for want of time or by failing; what torch refuses is an
        answer."""
        failed = [row for row in self._steps.fresh if row.outcome == "failed"]
        if failed and all(row.outcome != "ok" for row in self._steps.fresh):
            text = f"No plan ran, so no time was measured. {failed[0].reason}"
            self._notes.add(Reason("not-measured", text, {"possible": True}))

    def _note_stuck(self) -> None:
        text = f"Nothing was measured: this is told from what was known before. {self._following.untraceable}"
        self._notes.add(Reason("not-measured", text, {"possible": True}))

    def _note_unmeasurable(self, why: str) -> None:
        self._unmeasurable = why
        if self._request.effort != "instant":
            self._notes.add(Reason("not-measured", f"Nothing was measured: {why}.", {"possible": False}))


def _both(unmeasured: LabError, untraceable: LabError) -> LabError:
    """Where nothing was measured after a trace that took too long: it took the most of the time, too."""
    if untraceable.code != "too-slow":
        return unmeasured
    text = f"{unmeasured} Before that, the model was not traced. {untraceable}"
    return LabError(unmeasured.code, text, unmeasured.retry_after_seconds)


async def _another(lab: Lab, options: Sequence[str], stack: contextlib.AsyncExitStack) -> Child:
    """One more process to measure in, until the stack is left. Raises LabError."""
    return await stack.enter_async_context(lab.another({}, options))
