"""Work that ends when the client who waits for it leaves: a measurement holds the machine's only slot."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from fastapi import Request

from app.api.problems import Problem

T = TypeVar("T")


async def while_awaited(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`. Raises Problem, which nobody reads, when the client leaves first; `work` has ended then.

    The request's body has to have been read: what comes after it is only the client's leaving.
    """
    working = asyncio.create_task(work)
    leaving = asyncio.create_task(_leave(request))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
    finally:
        leaving.cancel()
        if not working.done():
            working.cancel()
            await asyncio.wait([working])
    if working.cancelled():
        raise Problem(
            400, "cut-off", "The client left", "The client left before the answer, and what ran for it ended."
        )
    return working.result()


async def _leave(request: Request) -> None:
    """Wait until the client has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
