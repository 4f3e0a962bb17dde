"""uvicorn's HTTP/1.1 with what it lacks: a deadline for a request's head, and problems for what is no HTTP."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from app.api.problems import MEDIA_TYPE, Problem
from probes import bounds

Awaited = Literal["head", "body"]


class DeadlineProtocol(H11Protocol):
    """A connection whose next request's head has to be complete in MAX_HEADER_SECONDS after its first byte (after
    connecting, for the first request). So has a body behind its answer, in MAX_BODY_SECONDS; one that is read has its
    deadline there (app.api.guard). Between requests uvicorn's own keep-alive timeout holds, which any byte ends."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._timer: asyncio.TimerHandle | None = None
        self._awaits: Awaited | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await("head")

    def connection_lost(self, exc: Exception | None) -> None:
        self._await(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._await("head")
        elif self.conn.their_state is h11.SEND_BODY and self.cycle.response_complete:
            self._await("body")
        else:
            self._await(None)

    def shutdown(self) -> None:
        """A body that is only half here when the service ends will not be waited for."""
        if self.cycle is not None and self.cycle.more_body and not self.cycle.response_started:
            self.transport.close()
        else:
            super().shutdown()

    def send_400_response(self, msg: str) -> None:
        """In the place of uvicorn's plain text."""
        detail = "What came is no HTTP/1.1 request."
        self._refuse(Problem(400, "not-http", "Not HTTP", detail))

    def _await(self, what: Awaited | None) -> None:
        """From now on; what was awaited before already has its deadline."""
        if what == self._awaits:
            return
        self._awaits = what
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if what == "head":
            self._timer = self.loop.call_later(bounds.MAX_HEADER_SECONDS, self._give_up)
        elif what == "body":  # nothing can be answered any more
            self._timer = self.loop.call_later(bounds.MAX_BODY_SECONDS, self.transport.close)

    def _give_up(self) -> None:
        detail = f"The request's head did not arrive within {bounds.MAX_HEADER_SECONDS:.0f} seconds."
        self._refuse(Problem(408, "too-slow", "The request came too slowly", detail))

    def _refuse(self, problem: Problem) -> None:
        """Answer and close, past h11, whose state may allow neither."""
        if self.transport.is_closing():
            return
        body = problem.body()
        head = (
            f"HTTP/1.1 {problem.status} {problem.title}\r\nContent-Type: {MEDIA_TYPE}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self.transport.write(head.encode("ascii") + body)
        self.transport.close()
