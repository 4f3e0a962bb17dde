"""What measurements and calibrations have in common: 202 with Location, GET, its events, DELETE."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import Response
from fastapi.sse import ServerSentEvent

from app.api.context import Context, answer_json
from app.api.problems import Problem
from app.jobs import FINISHED, Job, Kind


def accepted(job: Job, folder: str) -> Response:
    """202, and where to ask on."""
    return answer_json(job.document(), 202, {"Location": f"{folder}/{job.id}"})


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
