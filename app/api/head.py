"""HEAD wherever GET is: the same answer without its body. Plain ASGI."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

# A stream has no end that HEAD could wait for; the static files answer HEAD themselves.
STREAMS, STATIC = "/events", "/static"


class Head:
    """Asks what is behind it for GET, and keeps the body back."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD" or _is_other(scope["path"]):
            await self._app(scope, receive, send)
            return

        async def send_head(message: Message) -> None:
            await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

        asked = {**scope, "method": "GET"}
        try:
            await self._app(asked, receive, send_head)
        finally:
            if "route" in asked:  # the tally's label
                scope["route"] = asked["route"]


def _is_other(path: str) -> bool:
    return path.endswith(STREAMS) or path.startswith(STATIC)
