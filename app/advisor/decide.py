"""The advisor's one question: given what is known, where should this workload run, and why?"""

from __future__ import annotations

from collections.abc import Sequence

from app.advisor.crowding import load_of
from app.advisor.curves.over_batches import crossovers_of, curves_over
from app.advisor.curves.pairs import plans_of
from app.advisor.device_order import explain_order, in_bus_order
from app.advisor.explanations.busy_device import explain_busy_device
from app.advisor.explanations.experience_reason import explain_experience
from app.advisor.explanations.host_reason import explain_host
from app.advisor.explanations.left_out_reason import explain_left_out, explain_uncalibrated
from app.advisor.explanations.reasons import Evidence, explain
from app.advisor.explanations.sick_device import explain_sick_device
from app.advisor.explanations.unmeasured_cards import explain_unmeasured_cards
from app.advisor.explanations.verdict import say_verdict
from app.advisor.known import Known, gather
from app.advisor.pinning import explain_pinning, pins
from app.advisor.ranking import Ranking
from app.advisor.recommendation import Reason, Recommendation
from app.advisor.request import Request
from app.advisor.settings import settings_for
from app.advisor.snippets.snippet import write_snippet
from app.advisor.starts import start_of
from app.advisor.time_model.experience import Experience
from probes.hardware import Accelerator, Survey
from probes.measurement import Measurement
from probes.profile import Profile
from probes.trace import Trace
from probes.workload.description import Plan


def recommend(
    survey: Survey,
    profile: Profile | None,
    trace: Trace | None,
    measurements: Sequence[Measurement],
    request: Request,
    experience: Experience | None = None,
    *,
    captured: bool = False,
    unreadable: str | None = None,
) -> Recommendation:
    """Ranked plans with crossovers, settings, reasons and a snippet. Pure arithmetic: milliseconds.

    trace: None for a `summary` model, whose trace follows from its totals. measurements: of this very model, under
    any plan, at any batch size, also before `instant` was asked. experience: what other models took on this machine.
    captured: this machine is known from files alone. Without a profile the times that were not measured are
    None; unreadable: why nobody can tell whether there is one. Raises InvalidRequest (see candidate_plans).
    """
    workload = request.workload
    found = (survey, profile, trace, measurements)
    known = gather(*found, request, experience, captured=captured, unreadable=unreadable)
    trace = known.trace
    options = known.options(workload.batch_size)
    ranking = known.ranking(workload.batch_size, options)
    best = ranking.best.plan if ranking.best is not None else None
    batches = known.batches(ranking)
    pairs = known.pairs(ranking, batches)
    drawn = plans_of(pairs, known.with_curve(ranking.best)) or known.drawn_alone(ranking)
    sizes, curves = curves_over(batches, drawn)
    told = in_bus_order(ranking.best, _cards(known))
    return Recommendation(
        workload=workload,
        parameters=trace.parameters if trace is not None else None,
        all_parameters=trace.all_parameters if trace is not None else None,
        flops_per_step=round(trace.flops(workload.batch_size)) if trace is not None else None,
        recommended=best,
        verdict=say_verdict(ranking, request, known.advice, profile is not None, known.elsewhere),
        confidence=ranking.confidence if best is not None else None,
        options=ranking.options,
        crossovers=crossovers_of(batches, pairs, measurements, known.device_starts(workload.batch_size)),
        curve_batch_sizes=sizes,
        curves=curves,
        settings=settings_for(told, pins=best is not None and _pins(known, best)),
        reasons=reasons_of(survey, profile, request, known, ranking),
        load=None if known.elsewhere is not None else load_of(known.crowd),
        snippet=write_snippet(workload, told.plan) if told is not None else None,
    )


def _pins(known: Known, best: Plan) -> bool:
    return pins(known.times.get(best.key), known.workload, can_run=known.runs_pinned(best))


def _cards(known: Known) -> tuple[Accelerator, ...]:
    """Of the machine that is asked about, as far as they are known."""
    return () if known.machine is None else known.machine.accelerators


def reasons_of(
    survey: Survey, profile: Profile | None, request: Request, known: Known, ranking: Ranking
) -> tuple[Reason, ...]:
    """What is to be said of this ranking, which is of the batch size that was asked about."""
    workload, best = known.workload, ranking.best
    found = (known.plans, known.rows, workload.batch_size, known.kinds, known.starts)
    reasons = explain(
        Evidence(
            workload,
            ranking,
            profile,
            known.trace,
            known.measurements,
            known.advice,
            known.halved,
            known.elsewhere is not None,
            known.crowd,
            known.gains,
            known.measured_there(workload.batch_size),
            known.machine,
            known.step_seconds,
            None if best is None else start_of(best.plan, *found),
        )
    )
    among = known.with_curve(ranking.best)
    time = known.times.get(among.key) if among is not None else None
    learned = explain_experience(time, workload.batch_size, workload.data)
    of_cards = _of_cards_and_host(survey, request, known, ranking)
    return (*reasons, *(() if learned is None else (learned,)), *of_cards)


def _of_cards_and_host(survey: Survey, request: Request, known: Known, ranking: Ranking) -> tuple[Reason, ...]:
    """What is to be said of them beside what was found of the plans."""
    best, is_here = ranking.best, known.elsewhere is None
    plan = best.plan if best is not None else None
    time = None if plan is None else known.times.get(plan.key)
    free = None if known.machine is None else known.machine.memory.usable_bytes
    row = None if time is None else time.nearest_row(known.workload.batch_size)
    found = (
        explain_sick_device(survey, plan) if is_here else None,
        explain_unmeasured_cards(survey, request) if is_here else None,
        explain_left_out(known.left_out, request.precision),
        explain_uncalibrated(known.uncalibrated),
        explain_order(best, _cards(known)),
        None if plan is None else explain_pinning(time, known.workload, can_run=known.runs_pinned(plan)),
        explain_host(known.trace, free, best, known.workload.model.kind),
        explain_busy_device(survey, ranking.options, plan, row) if is_here else None,
    )
    return tuple(reason for reason in found if reason is not None)
