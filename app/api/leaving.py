"""Work that ends when the client who waits for it leaves: a measurement holds the machine's only slot."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from fastapi import Request

from app.api.problems import Problem

T = TypeVar("T")


# The name in a request's state of an event: the client closed its side of the connection, and may wait for the answer,
# or have left (app.api.protocol).
CLOSED = "client_closed"


async def while_awaited(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`. Raises Problem when the client leaves or closes its side first; `work` has ended then.

    The request's body has to have been read: what comes after it is only the client's leaving.
    """
    working = asyncio.create_task(work)
    closed: asyncio.Event | None = getattr(request.state, CLOSED, None)
    leaving = [asyncio.create_task(_leave(request))]
    if closed is not None:
        leaving.append(asyncio.create_task(_wait_for(closed)))
    try:
        await asyncio.wait((working, *leaving), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in leaving:
            task.cancel()
        if not working.done():
            working.cancel()
            await asyncio.wait([working])
    if working.cancelled():
        raise Problem(
            400,
            "cut-off",
            "The client left",
            "The client closed the connection, or its side of it, before the answer, and what ran for it ended. Keep "
            "both sides open where effort is quick or thorough.",
        )
    return working.result()


async def _leave(request: Request) -> None:
    """Wait until the client has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _wait_for(closed: asyncio.Event) -> None:
    await closed.wait()
