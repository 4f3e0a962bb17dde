"""POST /recommend: where to train, with which settings, and why."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request, Response

from app.answering.answer_notes import NOT_SAVED
from app.api.bodies import RecommendBody
from app.api.context import ContextDep, answer_json
from app.api.leaving import while_awaited
from app.api.openapi import describe_answer, describe_body
from app.api.reading import read_body

router = APIRouter(tags=["recommend"])


@router.post(
    "/recommend",
    responses=describe_answer(
        "Recommendation", "Options, best first. What does not fit has `fits` false and says why."
    ),
    openapi_extra=describe_body("RecommendBody"),
)
async def recommend(request: Request, context: ContextDep) -> Response:
    """Rank the ways to run a workload on this machine. `effort` above `instant` measures this very model first."""
    body = await read_body(request, RecommendBody)
    question = await asyncio.to_thread(body.request)
    work = context.crosspoint.recommend(question)
    # A trace is kept for whoever asks next, so only who measures is watched.
    answer = await (work if question.effort == "instant" else while_awaited(request, work))
    saved = all(reason.code != NOT_SAVED for reason in answer.reasons)
    return answer_json({**answer.to_json(), "saved": saved})
