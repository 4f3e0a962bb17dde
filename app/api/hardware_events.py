"""GET /hardware/events: what changes on this machine, once a second."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends
from fastapi.sse import EventSourceResponse, ServerSentEvent

from app.api.context import ContextDep
from app.livefeed import LiveFeed

router = APIRouter(tags=["hardware"])

RETRY_MILLISECONDS = 2_000  # a browser asks again after this long when the connection is lost


async def _listen(context: ContextDep) -> AsyncIterator[LiveFeed]:
    """A place among the listeners, given back however the stream ends. Raises FeedRefused."""
    feed = context.crosspoint.live
    with feed.listen():
        yield feed


@router.get("/hardware/events", response_class=EventSourceResponse)
async def stream_hardware(feed: Annotated[LiveFeed, Depends(_listen)]) -> AsyncIterator[ServerSentEvent]:
    """Server-sent events, one a second: `hardware`, with the changing facts of `GET /hardware` under the same names.

    Every event is complete; what it leaves out has not changed since the survey.
    """
    number, retry = 0, RETRY_MILLISECONDS
    while (told := await feed.next(number)) is not None:
        yield ServerSentEvent(raw_data=told.text, event="hardware", id=str(told.number), retry=retry or None)
        number, retry = told.number, 0
