"""The advisor's one question: given what is known, where should this workload run, and why?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from app.advisor.elsewhere import idle_survey
from app.advisor.memory import MemoryEstimate, estimate_memory
from app.advisor.options import option_for, tried
from app.advisor.over_batches import Batches, crossovers_of, curves_over
from app.advisor.pairs import pairs_worth_telling, plans_of
from app.advisor.plans import candidate_plans, profiled_plans
from app.advisor.ranking import RatioSpread, rank_options
from app.advisor.reasons import Evidence, explain
from app.advisor.recommendation import Option, Recommendation
from app.advisor.request import Request
from app.advisor.settings import settings_for
from app.advisor.snippet import write_snippet
from app.advisor.step_time import PlanTime, shared_spread, times_of_plans
from app.advisor.summary import trace_of_summary
from app.advisor.verdict import say_verdict
from probes.hardware import Survey
from probes.measurement import Measurement
from probes.profile import Profile
from probes.trace import Trace
from probes.workload.description import Plan, Workload


def recommend(
    survey: Survey,
    profile: Profile | None,
    trace: Trace | None,
    measurements: Sequence[Measurement],
    request: Request,
) -> Recommendation:
    """Ranked plans with crossovers, settings, reasons and a snippet. Pure arithmetic: milliseconds.

    trace: None for a `summary` model, whose trace follows from its totals. measurements: of this very model, under
    any plan, at any batch size; none for `instant`. Without a profile the times that were not measured are None.
    Raises InvalidRequest (see candidate_plans).
    """
    workload = request.workload
    if trace is None and workload.model.kind == "summary":
        trace = trace_of_summary(workload)
    elsewhere = profile if profile is not None and _is_elsewhere(survey, profile, request) else None
    plans = candidate_plans(survey, request) if elsewhere is None else profiled_plans(elsewhere, request)
    times = times_of_plans(plans, profile, trace, measurements, workload)
    machine = survey if elsewhere is None else idle_survey(elsewhere.hardware) if elsewhere.hardware else None
    kind = workload.model.kind
    memory = {plan.key: _memory(machine, profile, trace, measurements, plan, kind) for plan in plans}
    outcomes = {plan.key: tried(measurements, plan, workload.batch_size, _free(memory[plan.key])) for plan in plans}
    options = [option_for(times[plan.key], memory[plan.key], outcomes[plan.key], workload) for plan in plans]
    ranking = rank_options(options, _ratio_spread(times, workload))
    best = ranking.best.plan if ranking.best is not None else None
    pairs = pairs_worth_telling(plans, best)
    batches = Batches(workload, times, {option.plan.key: option.max_batch_size for option in options})
    sizes, curves = curves_over(batches, plans_of(pairs, best))
    return Recommendation(
        workload=workload,
        parameters=trace.parameters if trace is not None else None,
        flops_per_step=round(trace.flops(workload.batch_size)) if trace is not None else None,
        recommended=best,
        verdict=say_verdict(ranking, workload, profile is not None, elsewhere),
        confidence=ranking.confidence if best is not None else None,
        options=ranking.options,
        crossovers=crossovers_of(batches, pairs, measurements),
        curve_batch_sizes=sizes,
        curves=curves,
        settings=settings_for(ranking.best, workload),
        reasons=explain(Evidence(workload, ranking, profile, trace, measurements, elsewhere is not None)),
        snippet=write_snippet(workload, best) if best is not None else None,
    )


def _ratio_spread(times: Mapping[tuple[object, ...], PlanTime], workload: Workload) -> RatioSpread:
    def spread(one: Option, other: Option) -> float | None:
        known = [times[option.plan.key].at(workload.batch_size, workload.data) for option in (one, other)]
        return None if known[0] is None or known[1] is None else shared_spread(known[0], known[1])

    return spread


def _is_elsewhere(survey: Survey, profile: Profile, request: Request) -> bool:
    """The answer is for another machine, of which only the profile is known: not its memory, not its devices."""
    return request.profile is not None and profile.fingerprint != survey.fingerprint


def _memory(
    survey: Survey | None,
    profile: Profile | None,
    trace: Trace | None,
    measurements: Sequence[Measurement],
    plan: Plan,
    model_kind: str,
) -> MemoryEstimate | None:
    return None if trace is None else estimate_memory(survey, profile, trace, measurements, plan, model_kind)


def _free(memory: MemoryEstimate | None) -> int | None:
    return None if memory is None else memory.available
