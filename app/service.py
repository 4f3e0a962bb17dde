"""Crosspoint: everything that the HTTP interface and the command line can ask for, in one place.

async with Crosspoint(settings) as crosspoint:
    recommendation = await crosspoint.recommend(request)
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from app import labjobs
from app.advisor.explanations.busy_device import is_busy, without_utilization
from app.advisor.known import gather
from app.advisor.like_cards import free_devices
from app.advisor.plans import candidate_plans, cuda_accelerators
from app.advisor.recommendation import Recommendation
from app.advisor.request import InvalidRequest, Request
from app.advisor.time_model.pooled import pool
from app.answering.apart import may_all_run_apart, start_options
from app.answering.compilable import without_uncompilable
from app.answering.lasting_paces import note_paces, paces_now
from app.answering.own_work import run_without_own
from app.answering.recommending import Recommending
from app.answering.survey_at_turn import CheckAtTurn, SurveyAtTurn
from app.asking_torch import AskingTorch
from app.errors import CrosspointError, LabBusy, LabError, StoreError, UnknownProfile
from app.fitted_thread import in_fitted_thread
from app.keeping import (
    Kept,
    OnProgress,
    RunJob,
    forward_progress,
    parse_sent,
    say_nothing,
    say_waiting,
    to_its_end,
    trouble_with,
    unless_unreadable,
)
from app.known_profiles import KnownProfiles
from app.lab import Lab, Ticket
from app.lab.tracer import TRACE_SECONDS
from app.lessons import Lessons
from app.livefeed import LiveFeed
from app.measurable import check_is_here, check_measurable, check_surveyed, find_surveyed_devices
from app.profile_names import free_name
from app.seen_before import with_devices, with_survey
from app.settings import Settings
from app.store import Store
from app.store.machine import read_machine
from app.surveyor import Surveyor
from app.traces import Traces
from probes.fingerprint import Identity
from probes.hardware import Survey
from probes.measurement import Measurement
from probes.profile import Profile
from probes.reading import Root
from probes.trace import Trace
from probes.workload.description import Plan, Workload

__all__ = ["Crosspoint", "CrosspointError", "LabBusy", "LabError", "OnProgress", "StoreError", "UnknownProfile"]

# What a calibration takes at most.
CALIBRATION_SECONDS = {"quick": 30.0, "full": 60.0}


class Crosspoint:
    """The facade. Opens nothing and starts nothing until it is asked; leaving it ends every process it started.

    lab: of which processes are asked; this machine's where none is given."""

    def __init__(self, settings: Settings, lab: Lab | None = None) -> None:
        self.settings = settings
        self.store = Store(settings.data_dir, read_machine(Root(settings.sysroot)))
        self.lessons = Lessons(self.store, enabled=settings.learning)
        self.surveyor = Surveyor(settings, self._recall_identity)
        self.live = LiveFeed(self.surveyor, settings)
        self.lab = lab or Lab(settings)
        self._traces = Traces(self.store, captured=not self.is_here)
        self.profiles = KnownProfiles(self.store)
        self.torch = AskingTorch(self.lab, self.surveyor)
        self.waited_for_load = False  # that a second reading tells of

    async def __aenter__(self) -> Crosspoint:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End every process that was started, within 4 seconds, and close the store."""
        self.live.close()
        await asyncio.gather(self.lab.close(), self.surveyor.close())
        await self._traces.close()
        await self.store.close()

    @property
    def is_here(self) -> bool:
        """The machine that is read is the one this runs on, not a captured one."""
        return self.settings.sysroot == Path("/")

    async def survey(self, *, fresh: bool = False) -> Survey:
        """What this machine is; its changing facts at most a second old."""
        return (await self.surveyor.read(fresh=fresh)).survey

    async def survey_tried_twice(self) -> Survey:
        """As `survey`, and once more where that failed: the first one imports its modules within its time."""
        survey = await self.survey()
        return survey if survey.fingerprint else await self.survey(fresh=True)

    async def survey_for_plans(self, on_progress: OnProgress = say_nothing) -> Survey:
        """As `survey_tried_twice`, with torch's word on cards that nothing else is certain of: what plans there are
        depends on it. Where torch was not asked before, the process that traces is started for it, and waited for."""
        survey = await self.survey_tried_twice()
        has_asked = self.is_here and await self.torch.learn_for_plans(survey, on_progress)
        return await self.survey_tried_twice() if has_asked else survey

    def apart_from_ours(self, survey: Survey) -> Survey:
        """Without how busy cards are, where that may be by a measurement of this process."""
        return without_utilization(survey) if self.lab.measured_lately else survey

    async def note_state(self, survey: Survey) -> None:
        """Keep what this machine is now. Raises StoreError. A part that nobody can tell of is no change."""
        identity = self.surveyor.identity  # of the last survey that did not fail
        if self.is_here and identity is not None and survey.fingerprint:
            await self.store.keep_survey(survey)
            await self.store.keep_state(identity)

    async def history(self) -> list[dict[str, Any]]:
        """What this machine was, newest first, and what changed each time."""
        return await unless_unreadable(self.store.history()) or []

    async def _recall_identity(self) -> Identity | None:
        return await unless_unreadable(self.store.identity()) if self.is_here else None

    async def profile(self, survey: Survey, name: str | None = None) -> Profile | None:
        """The stored profile of this name, or without a name this machine's. Raises UnknownProfile for a name, and
        StoreError where nobody can tell."""
        return await self.profiles.find(survey, name)

    async def known_trace(self, survey: Survey, workload: Workload, *, devices: bool = False) -> Trace | None:
        """The trace of this workload's content under the torch that is installed, if it was made before; devices: with
        the step as a device runs it."""
        return await self._traces.find(survey, workload, devices=devices)

    def trace_refusal(self, survey: Survey, workload: Workload, seconds: float, *, devices: bool) -> LabError | None:
        """Why no trace came of an earlier try in as many seconds, where none would come of another."""
        return self._traces.refusal(survey, workload, seconds, devices=devices)

    async def new_trace(
        self,
        survey: Survey,
        workload: Workload,
        run: RunJob | None = None,
        *,
        devices: bool = False,
        seconds: float = TRACE_SECONDS,
    ) -> Kept[Trace]:
        """Trace now, by whichever process `run` speaks to, and keep it; without that by the lab's, where one trace is
        for all who ask for it meanwhile. seconds: after which that gives up. Raises LabError, LabBusy."""
        make = partial(self._make_trace, survey, workload, run or self.lab.run, seconds, devices=devices)
        if run is not None:
            return await make()
        return await self._traces.once(survey, workload, make, seconds, devices=devices)

    async def _make_trace(
        self, survey: Survey, workload: Workload, run: RunJob, seconds: float, *, devices: bool
    ) -> Kept[Trace]:
        """And learn from what was measured before there was one."""
        kept = await self._traces.make(survey, workload, run, seconds, devices=devices)
        measured = await self.measurements(survey, workload)
        if measured:
            await self.lessons.keep(survey, await self.profile(survey), kept.value, workload, measured)
        return kept

    async def trace(self, workload: Workload) -> Trace:
        """The operations of one step, from the store or traced now; on this machine's devices, too. Raises LabError."""
        survey = await self.survey_for_plans()
        devices = bool(cuda_accelerators(survey))
        known = await self.known_trace(survey, workload, devices=devices)
        return known or (await self.new_trace(survey, workload, devices=devices)).value

    async def recommend(
        self, request: Request, on_progress: OnProgress | None = None, ticket: Ticket | None = None
    ) -> Recommendation:
        """Where and how to train. Raises InvalidRequest, LabError, LabBusy, UnknownProfile, and StoreError where nobody
        can look that up.

        ticket: a place in the lab's queue, for an effort above instant. A measurement that fails costs the answer its
        better basis and nothing else; the reasons say so.
        """
        return await Recommending(self, request, on_progress or say_nothing, ticket).answer()

    async def measure(
        self,
        request: Request,
        *,
        seconds: float,
        plans: Sequence[Plan] = (),
        batch_sizes: Sequence[int] = (),
        on_progress: OnProgress | None = None,
        ticket: Ticket | None = None,
    ) -> list[Measurement]:
        """Run real steps under each plan (empty: every candidate) and keep the measurements. Raises InvalidRequest,
        LabError, LabBusy."""
        return (await self.measure_and_keep(request, seconds, plans, batch_sizes, on_progress, ticket)).value

    async def measure_and_keep(
        self,
        request: Request,
        seconds: float,
        plans: Sequence[Plan] = (),
        batch_sizes: Sequence[int] = (),
        on_progress: OnProgress | None = None,
        ticket: Ticket | None = None,
    ) -> Kept[list[Measurement]]:
        """As `measure`, and says whether it was saved. Plans run as for a recommendation, and are told alike. Who is
        cancelled while the process is ending, with its result there, gets it all the same."""
        with self._measuring(seconds, on_progress, ticket) as ticket:
            survey = self.apart_from_ours(await self.survey_for_plans(on_progress or say_nothing))
            check_measurable(survey, request)
            workload, plans = request.workload, plans or candidate_plans(survey, request)
            at_turn = SurveyAtTurn(self, ticket, survey)
            options = start_options(workload) if any(plan.is_cpu for plan in plans) else ()
            sizes = batch_sizes or (workload.batch_size,)

            async def make_job() -> dict[str, Any]:
                return await self._measure_job(await at_turn.survey(), request, plans, sizes, seconds)

            say = forward_progress(on_progress)
            result = await self.lab.run_at_turn(
                make_job, say, seconds=seconds, ticket=ticket, options=options, run=run_without_own
            )
            return await to_its_end(self.keep_measurements(await at_turn.survey(), workload, result))

    async def _measure_job(
        self, survey: Survey, request: Request, plans: Sequence[Plan], sizes: Sequence[int], seconds: float
    ) -> dict[str, Any]:
        """For these plans at these batch sizes, as a recommendation has them run."""
        workload, profile = request.workload, await self.profile(survey)
        paces = await paces_now(self.store, profile)
        trace, measured = await self.known_trace(survey, workload), await self.measurements(survey, workload)
        known = await in_fitted_thread(profile, gather, survey, profile, trace, measured, request)
        apart = await asyncio.to_thread(may_all_run_apart, known, plans, sizes, seconds)
        return labjobs.measure_job(survey, workload, plans, sizes, seconds, apart=apart, paces=paces, trace=trace)

    async def keep_measurements(
        self, survey: Survey, workload: Workload, result: dict[str, Any]
    ) -> Kept[list[Measurement]]:
        """Parse what a measuring process sent, and store what of it holds longer than this moment. Raises LabError when
        it is no measurement."""
        sent = [parse_sent(Measurement.from_json, row) for row in result.get("measurements") or ()]
        found = [with_survey(row, survey) for row in sent]
        await note_paces(self.store, survey.fingerprint, result)
        trace = await self.known_trace(survey, workload)
        await self.lessons.keep(survey, await self.profile(survey), trace, workload, found)
        lasting = [row for row in found if not row.momentary]
        return Kept(found, await trouble_with(self.store.keep_measurements(survey.fingerprint, workload, lasting)))

    async def measurements(self, survey: Survey, workload: Workload) -> list[Measurement]:
        """What was measured of this workload on this machine as it is now, of plans that can run there now."""
        kept = await self.measurements_of(survey.fingerprint, workload)
        return await without_uncompilable(kept) if self.is_here else kept

    async def measurements_of(self, fingerprint: str, workload: Workload) -> list[Measurement]:
        """What was measured of it on any machine that left it in this store."""
        if not fingerprint:  # the survey failed: whose they would be is not known
            return []
        return await unless_unreadable(self.store.measurements(fingerprint, workload)) or []

    async def calibrate(
        self,
        effort: str,
        *,
        devices: Sequence[str] = (),
        name: str | None = None,
        on_progress: OnProgress | None = None,
        ticket: Ticket | None = None,
        by_itself: bool = False,
        check: CheckAtTurn | None = None,
    ) -> Profile:
        """Measure this machine's constants (`quick` or `full`) and keep the profile, in which the calibrations before
        it count too. by_itself: nobody asked for it, and a profile of this machine that somebody brought meanwhile is
        left as it is, and given. check: before anything is measured; what it raises ends the calibration. Raises
        InvalidRequest, LabError, LabBusy."""
        asked = (effort, devices, name, on_progress, ticket)
        return (await self.calibrate_and_keep(*asked, by_itself=by_itself, check=check)).value

    async def calibrate_and_keep(
        self,
        effort: str,
        devices: Sequence[str] = (),
        name: str | None = None,
        on_progress: OnProgress | None = None,
        ticket: Ticket | None = None,
        *,
        by_itself: bool = False,
        check: CheckAtTurn | None = None,
    ) -> Kept[Profile]:
        """As `calibrate`, and says whether it was saved."""
        if effort not in CALIBRATION_SECONDS:
            raise InvalidRequest("A calibration's effort is quick or full.", tuple(CALIBRATION_SECONDS))
        seconds = CALIBRATION_SECONDS[effort]
        with self._measuring(seconds, on_progress, ticket) as ticket:
            await self.survey_for_plans(on_progress or say_nothing)  # the profile says which cards there are
            at_turn = SurveyAtTurn(self, ticket, self.apart_from_ours(await self.survey(fresh=True)))

            async def make_job() -> dict[str, Any]:
                now = await at_turn.now()
                if check is not None:
                    await check(now)
                return await self._calibrate_job(now, effort, devices, name, by_itself=by_itself)

            result = await self.lab.run_at_turn(make_job, forward_progress(on_progress), seconds=seconds, ticket=ticket)
            return await to_its_end(self._keep_calibration(await at_turn.now(), name, result, by_itself=by_itself))

    async def _keep_calibration(
        self, survey: Survey, name: str | None, result: dict[str, Any], *, by_itself: bool
    ) -> Kept[Profile]:
        """Parse and store what a measuring process sent, with the calibrations before it."""
        measured = await asyncio.to_thread(parse_sent, Profile.from_json, result)
        await self.profiles.save_unsaved()
        async with self.profiles.changing:
            name = await free_name(self.store, survey, name)  # others' profiles may have come meanwhile
            calibration = replace(with_devices(measured, survey), name=name)
            earlier = await self.profiles.calibrations(name, calibration.fingerprint)
            profile = await asyncio.to_thread(pool, [calibration, *earlier])
            if by_itself and (brought := await self.profiles.brought(survey)) is not None:
                return Kept(brought, None)
            await trouble_with(self.store.keep_survey(survey))  # so that a later state of this machine is its own
            trouble = await trouble_with(self.store.keep_profile(profile, calibration))
            self.profiles.note(profile, calibration, saved=trouble is None)
        return Kept(profile, trouble)

    async def _calibrate_job(
        self, survey: Survey, effort: str, devices: Sequence[str], name: str | None, *, by_itself: bool
    ) -> dict[str, Any]:
        """By itself without cards on which others compute: their times would be theirs. In a quiet hour these are made
        up for."""
        check_surveyed(survey)
        if by_itself and not devices and any(is_busy(card) for card in survey.accelerators):
            devices = free_devices(survey)
        return labjobs.calibrate_job(survey, effort, devices, await free_name(self.store, survey, name))

    async def experiment(
        self,
        name: str,
        *,
        epochs: int,
        log_every: Sequence[int | None],
        devices: Sequence[str] = (),
        on_progress: OnProgress | None = None,
    ) -> dict[str, Any]:
        """Run an experiment (`iris`) on the devices (empty: all). Raises InvalidRequest, LabError, LabBusy."""
        check_is_here(is_here=self.is_here)
        if devices:
            devices = find_surveyed_devices(await self.survey_for_plans(on_progress or say_nothing), devices)
        job = labjobs.experiment_job(name, epochs, log_every, devices)
        runs = len(log_every) * (len(devices) or 1 + len((await self.survey()).accelerators))
        seconds = labjobs.experiment_seconds(epochs * runs)
        with self._measuring(seconds, on_progress, None) as ticket:
            return await self.lab.run(job, forward_progress(on_progress), seconds=seconds, ticket=ticket)

    @contextlib.contextmanager
    def _measuring(self, seconds: float, on_progress: OnProgress | None, ticket: Ticket | None) -> Iterator[Ticket]:
        """A place in the queue (the one given, or a new one), handed back however this ends. Raises InvalidRequest
        and LabBusy."""
        check_is_here(is_here=self.is_here)
        ticket = ticket or self.lab.reserve(seconds)
        say_waiting(ticket, on_progress)
        try:
            yield ticket
        finally:
            self.lab.release(ticket)
