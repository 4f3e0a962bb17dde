"""GET /gpus/{name}: what a card's name says, without owning the card."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Response

from app.api.context import answer_json
from app.api.openapi import describe_answer
from app.api.problems import Problem
from probes.names.gpu import near_names, parse_gpu_name

router = APIRouter(prefix="/gpus", tags=["hardware"])


# AMD's drivers call one card `AMD Instinct MI250X/MI250`: a name may hold a slash.
@router.get(
    "/{name:path}", responses=describe_answer("GpuName", "The card's generation, tier and what that is good for.")
)
async def read_gpu(name: str) -> Response:
    """A card by its marketing name: exact or unknown, never a guess."""
    known = await asyncio.to_thread(parse_gpu_name, name)
    if known is not None:
        return answer_json(known.to_json())
    near = await asyncio.to_thread(near_names, name)
    raise Problem(
        404,
        "unknown-gpu",
        "Unknown card",
        "No card is known by exactly this name. Write it as nvidia-smi or the box does.",
        {"suggestions": near},
    )
