"""/measurements: real steps of a workload, under every plan asked for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent

from app.api.bodies import MeasurementBody
from app.api.context import ContextDep, answer_json
from app.api.echo import without_echo
from app.api.jobviews import cancel_job, find_events, show_job, start_job, stream_job
from app.api.openapi import describe_answer, describe_body
from app.api.reading import read_body
from app.jobs import Job
from app.keeping import Kept, OnProgress, to_its_end
from app.lab import Ticket
from app.measurable import check_is_here, check_measurable, check_outcome, with_threads
from probes.measurement import Measurement

router = APIRouter(prefix="/measurements", tags=["measurements"])


@router.post(
    "",
    status_code=202,
    responses=describe_answer("Job", "Accepted; Location says where to ask on.", 202),
    openapi_extra=describe_body("MeasurementBody"),
)
async def start_measurement(request: Request, context: ContextDep) -> Response:
    """Run real steps of a workload, as soon as the machine is free."""
    body = await read_body(request, MeasurementBody)
    check_is_here(is_here=context.crosspoint.is_here)
    question = await asyncio.to_thread(body.request)
    survey = await context.crosspoint.survey_for_plans()
    asked = tuple(plan.plan() for plan in body.plans)
    check_measurable(survey, question, asked)
    plans = with_threads(survey, asked)

    async def work(ticket: Ticket, on_progress: OnProgress) -> Kept[dict[str, Any]]:
        kept = await context.crosspoint.measure_and_keep(
            question, body.seconds, plans, tuple(body.batch_sizes), on_progress, ticket
        )
        check_outcome(kept.value)
        rows = await to_its_end(asyncio.to_thread(_rows, kept.value, request.state.sent))
        return Kept({"measurements": rows}, kept.trouble)

    return await start_job(context, "measurement", body.seconds, work, request.state.sent)


def _rows(measurements: Sequence[Measurement], sent: Any) -> list[dict[str, Any]]:
    """As JSON; of why one failed, which torch may say, as much as a problem would."""
    rows = [item.to_json() for item in measurements]
    told = ({"reason": without_echo(row["reason"], sent)} if row["reason"] else {} for row in rows)
    return [{**row, **reason} for row, reason in zip(rows, told, strict=True)]


@router.get("", responses=describe_answer("JobList", "The last measurements, newest first, without their results."))
async def list_measurements(context: ContextDep) -> Response:
    """The last measurements."""
    return answer_json({"measurements": await context.jobs.recent("measurement")})


@router.get("/{name}", responses=describe_answer("Job", "The measurement as it stands."))
async def show_measurement(name: str, context: ContextDep) -> Response:
    """How far a measurement is, and its result when it is done."""
    return await show_job(context, "measurement", name)


@router.delete("/{name}", responses=describe_answer("Job", "The measurement after that."))
async def cancel_measurement(name: str, context: ContextDep) -> Response:
    """End a measurement that runs or waits."""
    return await cancel_job(context, "measurement", name)


async def _job(name: str, context: ContextDep) -> Job | dict[str, Any]:
    return await find_events(context, "measurement", name)


@router.get("/{name}/events", response_class=EventSourceResponse)
async def stream_measurement(job: Annotated[Job | dict[str, Any], Depends(_job)]) -> AsyncIterator[ServerSentEvent]:
    """Progress as server-sent events: `progress` after each change, `finished` last."""
    async for event in stream_job(job):
        yield event
