"""Real steps of one workload for one answer: of every plan, then of some at other batches, then of variants."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from app import labjobs
from app.advisor.curves.over_batches import startup_of
from app.advisor.environments import bare, gain_of
from app.advisor.explanations.environment_reason import explain_installed
from app.advisor.known import gather
from app.advisor.probing import LEAST_SECONDS, Probe, choose_probe
from app.advisor.recommendation import Recommendation
from app.advisor.request import Request
from app.advisor.second_look import SecondLook, better_than_before, choose_second_look
from app.answering.answer_notes import AnswerNotes
from app.answering.apart import may_run_apart
from app.answering.measuring_time import contest_seconds, expected_seconds, fitting_plans, options_of
from app.answering.own_work import run_without_own
from app.answering.trial_time import affordable, least_turn_seconds, seconds_kept_back
from app.answering.trials import Trial, fit_together, trial_of
from app.answering.variants import plain_option, seconds_of_best, variants_of, with_a_best
from app.errors import LabError
from app.keeping import OnProgress, forward_progress
from app.lab.child import Child
from app.store.latest import latest_of
from probes.allocators import read_allocators
from probes.hardware import Load, Survey
from probes.measurement import Measurement
from probes.profile import Profile
from probes.reading import Root
from probes.trace import Trace
from probes.workload.description import Plan

if TYPE_CHECKING:
    from app.service import Crosspoint

log = logging.getLogger(__name__)

StartChild = Callable[[], Awaitable[Child]]


class RealSteps:
    """fresh: what was measured for this answer. load: of the machine while every plan ran. paces: by threads, seconds
    of fixed work on this machine's calm cores, where they are known (lasting_paces). to_begin_seconds: that a job takes
    before its first step, as the last one said; layout_seconds: without processes of their own for plans on the CPU."""

    def __init__(self, crosspoint: Crosspoint, request: Request, on_progress: OnProgress, notes: AnswerNotes) -> None:
        self._crosspoint = crosspoint
        self._request = request
        self._on_progress = on_progress
        self._notes = notes
        self.paces: Mapping[int, float] = {}
        self.fresh: list[Measurement] = []
        self.load: Load | None = None
        self.to_begin_seconds = self.layout_seconds = 0.0

    async def known(self, survey: Survey) -> list[Measurement]:
        """What was measured of this workload here, before and now."""
        stored = await self._crosspoint.measurements(survey, self._request.workload)
        return latest_of([*stored, *self.fresh])  # what is fresh is stored as well, unless nothing could be saved

    async def run_plans(
        self, child: Child, survey: Survey, estimate: Recommendation, plans: Sequence[Plan], seconds: float
    ) -> None:
        """Those of them that fit, by the estimate, at the batch asked for. Raises LabError."""
        fitting = fitting_plans(estimate, plans)
        if not fitting:
            return
        enough = contest_seconds(estimate, fitting, seconds)
        noise = await self._run(
            child,
            survey,
            fitting,
            self._request.workload.batch_size,
            seconds,
            enough,
            expected_seconds(estimate, fitting),
            apart=may_run_apart(options_of(estimate, fitting), enough),
        )
        self.load = labjobs.load_meanwhile(survey, noise)

    async def probe(
        self,
        child: Child,
        another: StartChild,
        survey: Survey,
        profile: Profile | None,
        trace: Trace | None,
        seconds: float,
    ) -> Child:
        """Some plans at other batches, one batch after the other, each chosen by what is known by then, with the time
        that is left, and once more what nothing else bears out; a failure costs the answer nothing. Gives the process
        that ran last. another: starts one where the last job was the end of the one before."""
        end, tried, twice = time.monotonic() + seconds, list[int](), set[int]()
        now = replace(survey, load=self.load or survey.load)  # beside whom the plans ran
        while (left := end - time.monotonic()) >= self._least_probing_seconds(child):
            if not child.alive:
                try:
                    child = await another()
                except LabError as error:
                    log.info("No other batch was measured: %s", error)
                    return child
                continue
            known, begin = await self.known(survey), self.to_begin_seconds
            gathered = await asyncio.to_thread(gather, now, profile, trace, known, self._request)
            once, before = (
                dict.fromkeys(row.batch_size for row in rows if row.batch_size not in twice)
                for rows in (self.fresh, known)
            )
            again = await asyncio.to_thread(choose_second_look, gathered, left, once, begin, before)
            probe: Probe | None = again
            if probe is None:
                probe = await asyncio.to_thread(choose_probe, gathered, left, tried, begin)
            if probe is None:
                return child
            tried.append(probe.batch_size)
            if again is not None:
                twice.add(again.batch_size)
            there = [option for option in gathered.options(probe.batch_size) if option.plan in probe.plans]
            apart = may_run_apart(there, probe.seconds - begin)
            try:
                await self._run(child, survey, probe.plans, probe.batch_size, probe.seconds, apart=apart, again=again)
            except LabError as error:
                log.info("Batch %d was not measured to its end: %s", probe.batch_size, error)
                return child
        return child

    def _least_probing_seconds(self, child: Child) -> float:
        """Below which no batch more is measured, in this process or in the place of it."""
        start = 0.0 if child.alive else child.start_seconds
        return start + self.to_begin_seconds + LEAST_SECONDS

    async def seconds_for_variants(
        self, survey: Survey, estimate: Recommendation, trace: Trace | None, start_seconds: float
    ) -> float:
        """Of the time for measuring, to be kept for trials, by what is known now; 0 where there would be none."""
        kept, known = [0.0], await self.known(survey)
        for answer in with_a_best(estimate):
            option = plain_option(answer)
            if option is not None and fit_together(survey, option):
                variants = await asyncio.to_thread(variants_of, survey, answer, trace, known)
                start = start_seconds + self._device_seconds(option.plan)
                allowed, turn_seconds = self._request.measuring_seconds, self._turn_seconds(answer, option.plan)
                kept.append(seconds_kept_back(variants, allowed, start, turn_seconds))
        return max(kept)

    async def try_variants(
        self,
        survey: Survey,
        answer: Recommendation,
        trace: Trace | None,
        seconds_left: Callable[[], float],
        start_seconds: float,
    ) -> None:
        """What may make the answer's best plan faster. Where that fails the answer is as good as before."""
        variants = await asyncio.to_thread(variants_of, survey, answer, trace, await self.known(survey))
        if not variants:
            return
        best = bare(variants[0])
        lab, workload, turn_seconds = self._crosspoint.lab, self._request.workload, self._turn_seconds(answer, best)
        before = self._begin_seconds(best), self._device_seconds(best)  # a first step
        start_seconds += self._device_seconds(best)
        while tries := affordable(variants, seconds_left(), start_seconds, turn_seconds):
            plan, seconds = tries[0]
            trial = trial_of(lab, survey, workload, answer, seconds, self._on_progress, plan, self.paces, *before)
            if trial is not None:
                await self._try_one(survey, trial)
            variants = variants[variants.index(plan) + 1 :]

    def _device_seconds(self, plan: Plan) -> float:
        """What beginning on its device takes a process, as the plans' own contest found it."""
        if plan.is_cpu:
            return 0.0
        return startup_of(bare(plan), self.fresh, self._request.workload.batch_size) or 0.0

    def _begin_seconds(self, plan: Plan) -> float:
        """That a job of this plan takes before its first step, beside a process's start."""
        return self.to_begin_seconds if plan.is_cpu else self.layout_seconds

    def _turn_seconds(self, answer: Recommendation, plan: Plan) -> float:
        return least_turn_seconds(seconds_of_best(answer), self._begin_seconds(plan))

    async def _try_one(self, survey: Survey, trial: Trial) -> None:
        try:
            found = await trial.run()
        except LabError as error:
            log.info("A variant was not tried to its end: %s", error)
            return
        if found is None:
            log.info("%s was tried for %.0f s at most, and told nothing.", trial.plan.label, trial.seconds)
            return
        await self._note_allocators(found)
        await self._keep(survey, {"measurements": [found.to_json()]})

    async def _note_allocators(self, found: Measurement) -> None:
        gain = gain_of(found)
        matters = gain is not None and gain.pays and bool(found.plan.environment)
        installed = await asyncio.to_thread(read_allocators, Root()) if matters else ()
        if installed:
            self._notes.add(explain_installed(installed))

    async def _run(
        self,
        child: Child,
        survey: Survey,
        plans: Sequence[Plan],
        batch_size: int,
        seconds: float,
        enough: float | None = None,
        expected: Sequence[float | None] = (),
        *,
        apart: bool,
        again: SecondLook | None = None,
    ) -> dict[str, Any]:
        """Real steps, kept; gives the noise that they met. enough: of the seconds, where all plans have samples by
        then. again: only what says more than before is kept."""
        job = labjobs.measure_job(
            survey,
            self._request.workload,
            plans,
            (batch_size,),
            seconds,
            enough=enough,
            apart=apart,
            expected=expected,
            paces=self.paces,
        )
        deadline = self._crosspoint.lab.deadline(seconds)
        result = await run_without_own(child, job, deadline, forward_progress(self._on_progress))
        self.to_begin_seconds = result.get("to_begin_seconds") or 0.0
        self.layout_seconds = result.get("layout_seconds") or 0.0
        if again is not None:
            told = better_than_before(result["measurements"], await self.known(survey), again.surprising)
            result = {**result, "measurements": told}
        await self._keep(survey, result)
        return result.get("noise") or {}

    async def _keep(self, survey: Survey, result: dict[str, Any]) -> None:
        kept = await self._crosspoint.keep_measurements(survey, self._request.workload, result)
        self.fresh = [*self.fresh, *self._notes.value_of(kept)]
