"""GET /hardware: what this machine is."""

from __future__ import annotations

from fastapi import APIRouter, Response

from app.api.context import Context, ContextDep, answer_json
from app.api.openapi import describe_answer

router = APIRouter(tags=["hardware"])


@router.get("/hardware", responses=describe_answer("Survey", "The machine; its changing facts a second old at most."))
async def read_hardware(context: ContextDep) -> Response:
    """One survey: CPU, usable cores and memory, accelerators, storage, software, and what is wrong with them."""
    return Response(await encoded_survey(context), media_type="application/json")


@router.get("/hardware/history", responses=describe_answer("History", "Newest first; the first state has no changes."))
async def read_history(context: ContextDep) -> Response:
    """What this machine was since crosspoint first saw it: when its fingerprint changed, and what had changed."""
    return answer_json({"history": await context.crosspoint.history()})


async def encoded_survey(context: Context) -> bytes:
    """The body: bytes that were made when the survey was taken."""
    return (await context.crosspoint.surveyor.read()).body
