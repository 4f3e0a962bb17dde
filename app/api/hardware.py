"""GET /hardware: what this machine is."""

from __future__ import annotations

from fastapi import APIRouter, Response

from app.api.context import ContextDep
from app.api.openapi import describe_answer

router = APIRouter(tags=["hardware"])


@router.get("/hardware", responses=describe_answer("Survey", "The machine; its changing facts a second old at most."))
async def read_hardware(context: ContextDep) -> Response:
    """One survey: CPU, usable cores and memory, accelerators, storage, software, and what is wrong with them."""
    reading = await context.crosspoint.surveyor.read()
    return Response(reading.body, media_type="application/json")
