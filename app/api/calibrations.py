"""/calibrations: measuring what this machine's devices cost, kept as a profile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent

from app.api.bodies import CalibrationBody
from app.api.context import ContextDep, answer_json
from app.api.jobviews import cancel_job, find_events, show_job, start_job, stream_job
from app.api.openapi import describe_answer, describe_body
from app.api.reading import read_body
from app.jobs import Job
from app.keeping import Kept, OnProgress, to_its_end
from app.lab import Ticket
from app.measurable import check_is_here, find_surveyed_devices
from app.profiles import check_new_name
from app.service import CALIBRATION_SECONDS

router = APIRouter(prefix="/calibrations", tags=["calibrations"])


@router.post(
    "",
    status_code=202,
    responses=describe_answer("Job", "Accepted; Location says where to ask on.", 202),
    openapi_extra=describe_body("CalibrationBody"),
)
async def start_calibration(request: Request, context: ContextDep) -> Response:
    """Measure this machine's constants, as soon as it is free, and keep them as a profile."""
    body = await read_body(request, CalibrationBody)
    check_is_here(is_here=context.crosspoint.is_here)
    devices = find_surveyed_devices(await context.crosspoint.survey_for_plans(), body.devices)
    if body.name is not None:
        await check_new_name(context.crosspoint, body.name)

    async def work(ticket: Ticket, on_progress: OnProgress) -> Kept[dict[str, Any]]:
        kept = await context.crosspoint.calibrate_and_keep(body.effort, devices, body.name, on_progress, ticket)
        return Kept(await to_its_end(asyncio.to_thread(kept.value.to_json)), kept.trouble)

    return await start_job(context, "calibration", CALIBRATION_SECONDS[body.effort], work, request.state.sent)


@router.get("", responses=describe_answer("JobList", "The last calibrations, newest first, without their results."))
async def list_calibrations(context: ContextDep) -> Response:
    """The last calibrations."""
    return answer_json({"calibrations": await context.jobs.recent("calibration")})


@router.get("/{name}", responses=describe_answer("Job", "The calibration as it stands."))
async def show_calibration(name: str, context: ContextDep) -> Response:
    """How far a calibration is, and its result when it is done."""
    return await show_job(context, "calibration", name)


@router.delete("/{name}", responses=describe_answer("Job", "The calibration after that."))
async def cancel_calibration(name: str, context: ContextDep) -> Response:
    """End a calibration that runs or waits."""
    return await cancel_job(context, "calibration", name)


async def _job(name: str, context: ContextDep) -> Job | dict[str, Any]:
    return await find_events(context, "calibration", name)


@router.get("/{name}/events", response_class=EventSourceResponse)
async def stream_calibration(job: Annotated[Job | dict[str, Any], Depends(_job)]) -> AsyncIterator[ServerSentEvent]:
    """Progress as server-sent events: `progress` after each change, `finished` last."""
    async for event in stream_job(job):
        yield event
