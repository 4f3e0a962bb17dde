"""uvicorn's HTTP/1.1 with what it lacks: a deadline for a request's head, problems for what is no HTTP, an answer for
who closes the sending side."""

from __future__ import annotations

import asyncio
import sys
from typing import Any, Literal

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from app.api.guard import LINGER_BYTES, LINGER_SECONDS, twice
from app.api.leaving import CLOSED
from app.api.problems import MEDIA_TYPE, Problem
from probes import bounds

Awaited = Literal["head", "body", "end"]
# h11's words for what HTTP forbids and people get wrong.
_NO_HOST = "Missing mandatory Host: header"
_TWICE = frozenset({"Found multiple Host: headers", "conflicting Content-Length headers"})


class DeadlineProtocol(H11Protocol):
    """A connection whose next request's head has to be complete in MAX_HEADER_SECONDS after its first byte (after
    connecting, for the first request). So has a body behind its answer, in MAX_BODY_SECONDS; one that is read has its
    deadline there (app.api.guard). Between requests uvicorn's own keep-alive timeout holds, which any byte ends."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._timer: asyncio.TimerHandle | None = None
        self._awaits: Awaited | None = None
        self._is_half_closed = False  # by the client
        self._dropped: int | None = None  # bytes that came after a refusal; None: there was none

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await("head")

    def connection_lost(self, exc: Exception | None) -> None:
        self._await(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._dropped is not None:
            self._dropped += len(data)
            if self._dropped > LINGER_BYTES:
                self.transport.close()
            return
        super().data_received(data)
        if self._dropped is not None:
            return
        if self.conn.their_state is h11.IDLE:
            self._await("head")
        elif self.conn.their_state is h11.SEND_BODY and self.cycle.response_complete:
            self._await("body")
        else:
            self._await(None)

    def handle_events(self) -> None:
        super().handle_events()
        if self.scope is not None and CLOSED not in self.scope["state"]:
            closed = self.scope["state"][CLOSED] = asyncio.Event()
            if self._is_half_closed:
                closed.set()

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """A client may close its side once it has asked, and wait (RFC 9112, 9.6): then the connection stays until it
        is answered. One that has left looks the same, which is for who measures to heed (app.api.leaving)."""
        if self._dropped is not None or not self._owes_answer():
            return None
        self._is_half_closed = True
        self.scope["state"][CLOSED].set()
        return True

    def on_response_complete(self) -> None:
        super().on_response_complete()  # begins with the next request, if one waits
        if self._is_half_closed and not self._owes_answer():
            self.transport.close()

    def _owes_answer(self) -> bool:
        """Whether a whole request is here of whose answer nothing was sent. A stream's client that leaves ends it."""
        return self.cycle is not None and not self.cycle.more_body and not self.cycle.response_started

    def shutdown(self) -> None:
        """A body that is only half here when the service ends will not be waited for."""
        is_half_here = self.cycle is not None and self.cycle.more_body and not self.cycle.response_started
        if is_half_here or self._dropped is not None:
            self.transport.close()
        else:
            super().shutdown()

    def send_400_response(self, msg: str) -> None:
        """In the place of uvicorn's plain text, which it sends while it handles h11's error."""
        self._refuse(self._problem_of(sys.exception()))

    def _problem_of(self, error: BaseException | None) -> Problem:
        said, status = str(error), getattr(error, "error_status_hint", 400)
        is_head = self.cycle is None or self.cycle.response_complete  # else a chunk's first line is without end
        if status == 431 and is_head:
            return _too_long_head() if b"\n" in self.conn.trailing_data[0] else _too_long_address()
        if said == _NO_HOST:
            detail = "A request says in its header Host which host it asks, and this one does not: send that header."
            return Problem(400, "not-http", "No Host header", detail)
        if said in _TWICE:
            return twice()
        return Problem(400, "not-http", "Not HTTP", "What came is no HTTP/1.1 request.")

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
        elif what == "end":
            self._timer = self.loop.call_later(LINGER_SECONDS, self.transport.close)

    def _give_up(self) -> None:
        detail = f"The request's head did not arrive within {bounds.MAX_HEADER_SECONDS:.0f} seconds."
        self._refuse(Problem(408, "too-slow", "The request came too slowly", detail))

    def _refuse(self, problem: Problem) -> None:
        """Answer past h11, whose state may allow neither that nor an end, and close; what still comes is dropped until
        the client has read the answer and closed, too."""
        if self.transport.is_closing():
            return
        if self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
            self.transport.close()  # in the middle of another answer nothing can be said
            return
        body = problem.body()
        head = (
            f"HTTP/1.1 {problem.status} {problem.title}\r\nContent-Type: {MEDIA_TYPE}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self.transport.write(head.encode("ascii") + body)
        self._dropped = 0
        if self.cycle is not None:  # who waits for the rest of a body will not see it
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.flow.resume_reading()
        self.transport.write_eof()
        self._await("end")


def _too_long_address() -> Problem:
    detail = f"A request's first line may have {bounds.MAX_HEAD_BYTES // 1024} KiB. What is longer belongs in a body."
    return Problem(414, "too-large", "The address is too long", detail)


def _too_long_head() -> Problem:
    detail = (
        f"A request's first line and headers together may have {bounds.MAX_HEAD_BYTES // 1024} KiB. Leave out headers, "
        "such as cookies of other services on this host."
    )
    return Problem(431, "too-large", "The headers are too long", detail)
