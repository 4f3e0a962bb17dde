"""A short way for what is asked most: health checks and the survey, whose routing costs more than their answer.

The same addresses are routes as well, which describe them; what is answered is the same. Plain ASGI.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.context import Context

Answer = Callable[[Context], Awaitable[bytes]]


class HotPaths:
    """Answers GET of the paths given with JSON that is there already; everything else goes on."""

    def __init__(self, app: ASGIApp, answers: Mapping[str, Answer]) -> None:
        self._app = app
        self._answers = answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._answers.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "GET" else None
        if answer is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = _Route(scope["path"])
        body = await answer(scope["app"].state.context)
        headers: list[tuple[bytes, Any]] = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})


class _Route:
    """As much of a route as the tally reads."""

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path
