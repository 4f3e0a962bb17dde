"""What can be known to be no measurement before anything starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from app.advisor.plans import candidate_plans, find_devices, thread_counts, why_not_here
from app.advisor.request import InvalidRequest, Request
from app.errors import LabError
from probes.hardware import Survey
from probes.measurement import Measurement
from probes.workload.description import Plan


def check_is_here(*, is_here: bool) -> None:
    """Raises InvalidRequest for a captured machine: its files are here, and nothing that could run a step."""
    if not is_here:
        raise InvalidRequest("A captured machine can be read, not measured: leave sysroot out.")


def check_measurable(survey: Survey, request: Request, plans: Sequence[Plan] = ()) -> None:
    """Raises InvalidRequest for a model that cannot run, a device that is not here, or a plan that it cannot have or
    that the request's devices and precision leave out, and LabError where nobody knows what is here."""
    if request.workload.model.kind == "summary":
        raise InvalidRequest(
            "A summary can be estimated, not measured: it has no layers that could run. Ask for a recommendation, "
            "or describe the model by its layers or its config."
        )
    check_surveyed(survey)
    asked_for = {(each.device, each.precision) for each in candidate_plans(survey, request)}
    for plan in plans:
        _check_plan(survey, request, plan)
        if (plan.device, plan.precision) not in asked_for:
            raise InvalidRequest(
                f"A plan is on {plan.device} in {plan.precision}, which devices and precision leave out: leave out "
                "the plan, or these."
            )


def check_surveyed(survey: Survey) -> None:
    """Raises LabError for a survey that failed: by it this machine has one core, and what is measured is nobody's."""
    if not survey.fingerprint:
        raise LabError(
            "failed",
            "The survey failed: nobody could tell which machine this is, and what it has. Try again; "
            "`crosspoint hardware` says why.",
        )


def find_surveyed_devices(survey: Survey, asked: Sequence[str]) -> tuple[str, ...]:
    """As find_devices; raises LabError, too, where nobody knows what is here."""
    check_surveyed(survey)
    return find_devices(survey, asked)


def with_threads(survey: Survey, plans: Sequence[Plan]) -> tuple[Plan, ...]:
    """On the CPU with all cores that may be used where a plan says nothing of threads: every answer's plan says how
    many, and a time counts for the plan that it was measured of."""
    most = max(thread_counts(survey.cpu))
    return tuple(replace(plan, threads=most) if plan.is_cpu and plan.threads is None else plan for plan in plans)


def check_outcome(measurements: Sequence[Measurement]) -> None:
    """Raises LabError, with the first reason, when no plan could be run."""
    if any(item.outcome == "ok" for item in measurements):
        return
    if not measurements:
        raise LabError("failed", "No plan was measured.")
    first = measurements[0]
    raise LabError(first.outcome, first.reason or "No plan could be run; the measuring process gave no reason.")


def _check_plan(survey: Survey, request: Request, plan: Plan) -> None:
    everything = candidate_plans(survey, replace(request, precision="auto", devices=()))
    devices = tuple(dict.fromkeys(each.device for each in everything))
    if plan.device not in devices:
        raise InvalidRequest(why_not_here(survey, plan.device), suggestions=devices)
    precisions = tuple(dict.fromkeys(each.precision for each in everything if each.device == plan.device))
    if plan.precision not in precisions:
        raise InvalidRequest(
            f"A plan names a precision that {plan.device} does not have. It has {', '.join(precisions)}.",
            suggestions=precisions,
        )
    if plan.threads is not None and not plan.is_cpu:
        raise InvalidRequest(f"A plan on {plan.device} has no threads: leave them out.")
    most = max(thread_counts(survey.cpu))
    if plan.threads is not None and not 1 <= plan.threads <= most:
        raise InvalidRequest(f"A plan's threads have to be from 1 to {most}, the cores that may be used here.")
