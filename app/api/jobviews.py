"""What measurements and calibrations have in common: 202 with Location, GET, its events, DELETE."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import Response
from fastapi.sse import ServerSentEvent

from app.api.context import Context, answer_json
from app.api.echo import without_echo
from app.api.problems import OURS_ALONE, Problem
from app.errors import CrosspointError
from app.jobs import FINISHED, Job, Kind, Work
from app.keeping import Kept, OnProgress
from app.lab import Ticket


async def start_job(context: Context, kind: Kind, expected_seconds: float, work: Work, sent: Any) -> Response:
    """202, and where to ask on. sent: the body that asked for it, of which a failure's reason repeats no more than a
    problem does: jobs are listed for everybody. Raises LabBusy."""
    job = await context.jobs.start(kind, expected_seconds, _without_echo(work, sent))
    return answer_json(job.document(), 202, {"Location": f"/{kind}s/{job.id}"})


def _without_echo(work: Work, sent: Any) -> Work:
    async def do(ticket: Ticket, on_progress: OnProgress) -> Kept[dict[str, Any]]:
        try:
            return await work(ticket, on_progress)
        except OURS_ALONE:
            raise
        except CrosspointError as error:
            reason = await asyncio.to_thread(without_echo, str(error), sent)
            raise CrosspointError(error.code, reason) from error

    return do


def unknown_job() -> Problem:
    return Problem(
        404, "unknown-job", "Unknown job", "No job has this id. It may have been long ago: only the last are kept."
    )


def _job_elsewhere() -> Problem:
    return Problem(
        409,
        "job-elsewhere",
        "Another service runs this job",
        "Another process of crosspoint that keeps its data in the same folder runs this job: ask that one. GET of the "
        "job itself says whether it waits or runs.",
    )


async def find_events(context: Context, kind: Kind, name: str) -> Job | dict[str, Any]:
    """A job of this process, or the document of one before, which has ended. Raises Problem."""
    found = context.jobs.find(kind, name) or await context.jobs.document(kind, name)
    if found is None:
        raise unknown_job()
    if isinstance(found, dict) and found["state"] not in FINISHED:
        raise _job_elsewhere()
    return found


async def show_job(context: Context, kind: Kind, name: str) -> Response:
    document = await context.jobs.document(kind, name)
    if document is None:
        raise unknown_job()
    return answer_json(document)


async def cancel_job(context: Context, kind: Kind, name: str) -> Response:
    """Cancelling what has ended changes nothing, and answers the same. Raises Problem for another service's."""
    job = context.jobs.find(kind, name)
    if job is not None:
        await context.jobs.cancel(job)
        return await show_job(context, kind, name)
    document = await context.jobs.document(kind, name)
    if document is not None and document["state"] not in FINISHED:
        raise _job_elsewhere()
    return await show_job(context, kind, name)


async def stream_job(job: Job | dict[str, Any]) -> AsyncIterator[ServerSentEvent]:
    """The job's document (without its result) after each change: `progress`, and `finished` as the last one."""
    if isinstance(job, dict):
        row = {name: value for name, value in job.items() if name != "result"}
        yield ServerSentEvent(raw_data=json.dumps(row), event="finished")
        return
    shown = None
    while True:
        document = job.document(with_result=False)
        finished = job.state in FINISHED
        if document != shown:
            shown = document
            yield ServerSentEvent(raw_data=json.dumps(document), event="finished" if finished else "progress")
        if finished:
            return
        if document == job.document(with_result=False):
            await job.changed()
