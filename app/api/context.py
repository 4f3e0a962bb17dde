"""What the endpoints share: the one Crosspoint and its jobs, kept on the application."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

from fastapi import Depends, Request, Response

from app.api.tally import Tally
from app.jobs import Jobs
from app.service import Crosspoint
from app.upkeep import Upkeep


class Context:
    """Lives as long as the application runs."""

    def __init__(self, crosspoint: Crosspoint, tally: Tally) -> None:
        self.crosspoint = crosspoint
        self.tally = tally
        self.jobs = Jobs(crosspoint.lab, crosspoint.store)
        self.upkeep = Upkeep(crosspoint, self.jobs)
        self._upkeep_task = asyncio.create_task(self.upkeep.run())
        self._has_ended = False

    async def end_work(self) -> None:
        """End what runs by itself, every job and every process; the second call does nothing. Answers that are in the
        making still have the store."""
        if self._has_ended:
            return
        self._has_ended = True
        self._upkeep_task.cancel()
        self.crosspoint.live.close()
        await asyncio.gather(self.jobs.close(), self.crosspoint.lab.close(), asyncio.wait([self._upkeep_task]))

    async def close(self) -> None:
        """And close the store."""
        await self.end_work()
        await self.crosspoint.close()


def context_of(request: Request) -> Context:
    context: Context = request.app.state.context
    return context


ContextDep = Annotated[Context, Depends(context_of)]


def answer_json(document: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A document as it stands: it comes from our own dataclasses, so nothing checks it once more."""
    body = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Response(body.encode(errors="replace"), status, headers, "application/json")
