"""All that is known of a workload: its plans, their times and their memory, at any batch size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from app.advisor.crowding import Crowd, crowd_of
from app.advisor.elsewhere import idle_survey
from app.advisor.environments import Gain, bare, gains_that_pay, measured_beside
from app.advisor.experience import Experience
from app.advisor.memory import MemoryEstimate, estimate_memory
from app.advisor.one_value import explain_one_value
from app.advisor.options import option_for, tried
from app.advisor.over_batches import Batches
from app.advisor.pairs import Pair, pairs_worth_telling
from app.advisor.plans import candidate_plans, profiled_plans
from app.advisor.ranking import Ranking, rank_options
from app.advisor.recommendation import Option
from app.advisor.request import Request
from app.advisor.step_time import PlanTime, shared_spread, times_of_plans
from app.advisor.summary import trace_of_summary
from probes.hardware import Survey
from probes.measurement import Measurement
from probes.profile import Profile
from probes.trace import AUTOCAST, Trace
from probes.workload.description import Plan, Workload


@dataclass(frozen=True, slots=True)
class Known:
    """elsewhere: the profile, when the answer is for another machine, of which only it is known. times, memory: by the
    plan's key; a plan's memory is None without a trace. crowd: who holds cores of this machine now. gains: environments
    that pay."""

    workload: Workload
    trace: Trace | None
    elsewhere: Profile | None
    plans: tuple[Plan, ...]
    measurements: Sequence[Measurement]
    times: Mapping[tuple[object, ...], PlanTime]
    memory: Mapping[tuple[object, ...], MemoryEstimate | None]
    crowd: Crowd | None = None
    gains: tuple[Gain, ...] = ()

    def options(self, batch_size: int) -> list[Option]:
        """Every plan at this batch size, in the order of the plans; with an environment where it was found to pay."""
        workload = replace(self.workload, batch_size=batch_size)
        paying = [gain.plan for gain in self.gains if gain.batch_size == batch_size]
        return [self._option(plan, workload) for plan in (*self.plans, *paying)]

    def _option(self, plan: Plan, workload: Workload) -> Option:
        memory = self.memory[plan.key]
        free = None if memory is None else memory.available
        beside = 0 if memory is None or plan.is_cpu else memory.overhead or 0
        outcome = tried(self.measurements, plan, workload.batch_size, free, beside)
        if outcome.ran is None and outcome.refused is None:
            outcome = replace(outcome, refused=self._refused_in_trace(plan))
        if outcome.refused is None:
            outcome = replace(outcome, refused=explain_one_value(self.trace, workload.batch_size))
        return option_for(self.times[plan.key], memory, outcome, workload, elsewhere=self.elsewhere is not None)

    def _refused_in_trace(self, plan: Plan) -> str | None:
        """Why a step fails on this machine's CPU, known from tracing it; another machine may run it."""
        if self.trace is None or not self.trace.autocast_refused or self.elsewhere is not None:
            return None
        if not plan.is_cpu or plan.precision not in AUTOCAST:
            return None
        return f"A step under autocast failed when it was traced here. {self.trace.autocast_refused}"

    @property
    def smallest(self) -> int:
        """The smallest batch that torch takes: two, where one leaves batch norm a single value a channel."""
        return 1 if explain_one_value(self.trace, 1) is None else 2

    def pairs(self, options: Sequence[Option], best: Plan | None) -> tuple[Pair, ...]:
        """The plans whose crossovers are told, but for those that run at no batch. best: the recommended one."""
        if self.workload.batch_size < self.smallest:
            options = self.options(self.smallest)
        refused = {option.plan.key for option in options if option.cannot_run}
        return pairs_worth_telling([plan for plan in self.plans if plan.key not in refused], best)

    def batches(self, options: Sequence[Option]) -> Batches:
        """What to look at over the batch: these options' plans."""
        room = {option.plan.key: option.max_batch_size for option in options}
        return Batches(self.workload, self.times, room, self.smallest)

    def ranking(self, batch_size: int, options: Sequence[Option]) -> Ranking:
        """The best first, at this batch size."""

        def ratio_spread(one: Option, other: Option) -> float | None:
            for gain in self.gains:
                if {one.plan.key, other.plan.key} == {gain.plan.key, bare(gain.plan).key}:
                    return gain.ratio_spread
            rows = [self.times[option.plan.key].at(batch_size, self.workload.data) for option in (one, other)]
            return None if rows[0] is None or rows[1] is None else shared_spread(rows[0], rows[1])

        return rank_options(options, ratio_spread)


def gather(
    survey: Survey,
    profile: Profile | None,
    trace: Trace | None,
    measurements: Sequence[Measurement],
    request: Request,
    experience: Experience | None = None,
) -> Known:
    """trace: None for a `summary` model, whose trace follows from its totals. experience: this machine's, of other
    models. Raises InvalidRequest."""
    workload = request.workload
    if trace is None and workload.model.kind == "summary":
        trace = trace_of_summary(workload)
    elsewhere = profile if profile is not None and _is_elsewhere(survey, profile, request) else None
    plans = candidate_plans(survey, request) if elsewhere is None else profiled_plans(elsewhere, request)
    machine = survey if elsewhere is None else idle_survey(elsewhere.hardware) if elsewhere.hardware else None
    kind = workload.model.kind
    memory = {
        plan.key: None if trace is None else estimate_memory(machine, profile, trace, measurements, plan, kind)
        for plan in plans
    }
    crowd = crowd_of(survey) if elsewhere is None else None
    times = times_of_plans(plans, profile, trace, measurements, workload, crowd, None if elsewhere else experience)
    plans = _without_left_out(plans, times, measurements)
    gains = gains_that_pay(measurements, plans, workload) if elsewhere is None else ()
    for gain in gains:
        measured = measured_beside(measurements, gain, workload.data)
        times[gain.plan.key] = PlanTime(gain.plan, measured, None, workload.log_every, crowd=crowd)
        memory[gain.plan.key] = memory[bare(gain.plan).key]
    return Known(workload, trace, elsewhere, plans, measurements, times, memory, crowd, gains)


def _is_elsewhere(survey: Survey, profile: Profile, request: Request) -> bool:
    """The answer is for another machine, of which only the profile is known."""
    return request.profile is not None and profile.fingerprint != survey.fingerprint


def _without_left_out(
    plans: tuple[Plan, ...], times: Mapping[tuple[object, ...], PlanTime], measurements: Sequence[Measurement]
) -> tuple[Plan, ...]:
    """Without the thread counts that a quick calibration of many cores leaves out, where nothing has been tried on them
    either: of these nothing could be said, and of the others not how likely they are the best."""
    tried = {row.plan.key for row in measurements}
    calibrated = {plan.precision for plan in plans if plan.is_cpu and times[plan.key].predicted is not None}
    return tuple(
        plan
        for plan in plans
        if not plan.is_cpu
        or plan.precision not in calibrated
        or times[plan.key].predicted is not None
        or plan.key in tried
    )
