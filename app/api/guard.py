"""What every request passes first: who it is addressed to, where it comes from, how large it is. Plain ASGI.

A page that somebody's browser shows may resolve its own name to 127.0.0.1 and ask us (DNS rebinding): its requests
carry that name in Host, or its own address in Origin, and are refused.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterable
from urllib.parse import unquote

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.problems import Problem
from app.host_names import allowed_name, host_name
from app.settings import Settings
from probes import bounds

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
# Before a connection closes, what the client still sends is read and dropped, so that it reads the answer instead of
# a reset connection: for so long in all, and so long without a byte (one that waits for the end has to see it soon).
LINGER_SECONDS = 5.0
IDLE_SECONDS = 0.5
LINGER_BYTES = 256 * 1024 * 1024  # a model's weights by mistake; to drop them takes a second, and no memory

CLOSE = {"Connection": "close"}

# Of every HTML document, at whichever address it is: the page has no inline script or style.
PAGE_POLICY = b"default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
# The API's own page (fastapi's) has both, and may run them.
DOCS_PATH = "/docs"
DOCS_POLICY = b"frame-ancestors 'none'; base-uri 'none'"
# In nobody's frame: a click on what lies under another page would be a request of our own origin.
SECURITY_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
]


class Guard:
    """Refuses with a problem, or lets pass with a body that cannot grow beyond its bounds."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._names = known_names(settings)
        self._allowed = set(map(allowed_name, settings.allowed_hosts)) - LOOPBACK_NAMES
        self._any_address = not is_loopback(settings.host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = Body(receive)
        _take_absolute(scope)
        answer = Answer(scope, body, send)
        try:
            headers = _single_headers(scope["headers"])
            self._check_host(headers.get(b"host", b""))
            self._check_origin(headers)
            _check_length(headers.get(b"content-length"))
        except Problem as problem:
            await problem.response()(scope, body.receive, answer.send)
        else:
            await self._app(scope, body.receive, answer.send)

    def _check_host(self, value: bytes) -> None:
        name = host_name(value.decode("latin-1"))
        if name in self._names or (self._any_address and _is_address(name)):
            return
        raise Problem(
            421,
            "unknown-host",
            "Addressed to another host",
            "The request's Host header names a host that this service is not. Ask for it by its address, or let the "
            "service know the name with CROSSPOINT_ALLOWED_HOSTS.",
        )

    def _check_origin(self, headers: dict[bytes, bytes]) -> None:
        """A browser says whose page asks; only our own may. Programs that are no browser send no Origin. A proxy may
        ask by another name than the page has: that one has to be allowed. Loopback never is, where anybody's page may
        live."""
        origin = headers.get(b"origin")
        if origin is None:
            return
        asking = origin.lower().partition(b"://")[2]
        if asking == headers.get(b"host", b"").lower() or host_name(asking.decode("latin-1")) in self._allowed:
            return
        raise Problem(
            403,
            "foreign-origin",
            "Asked from another site",
            "The request comes from a page of another origin. Only this service's own page may ask from a browser; "
            "where that is shown under another name, CROSSPOINT_ALLOWED_HOSTS lets the service know it.",
        )


class Body:
    """A request's body, with a bound on its bytes and on the time it takes."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._bytes = 0
        self._deadline: float | None = None
        self.ended = False

    async def receive(self) -> Message:
        """ASGI's receive; raises Problem beyond a bound."""
        if self.ended:  # what follows is only the client's leaving, for which there is no deadline
            return await self._receive()
        if self._deadline is None:
            self._deadline = asyncio.get_running_loop().time() + bounds.MAX_BODY_SECONDS
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            raise slow_body() from None
        if message["type"] == "http.disconnect":
            raise Problem(400, "cut-off", "The body was cut off", "The client left before its body was complete.")
        self._bytes += len(message.get("body", b""))
        self.ended = not message.get("more_body", False)
        if self._bytes > bounds.MAX_BODY_BYTES:
            raise too_large()
        return message

    async def drain(self) -> None:
        """Read and drop what the client still sends, within LINGER_SECONDS, IDLE_SECONDS and LINGER_BYTES."""
        time = asyncio.get_running_loop().time
        end, dropped = time() + LINGER_SECONDS, 0
        try:
            while not self.ended and dropped < LINGER_BYTES:
                async with asyncio.timeout_at(min(end, time() + IDLE_SECONDS)):
                    message = await self._receive()
                dropped += len(message.get("body", b""))
                self.ended = not message.get("more_body", False)
        except TimeoutError:
            return


class Answer:
    """`send` with headers that every answer has. Before a connection closes, what the client still sends is dropped
    for a moment: it then reads this answer instead of a reset connection."""

    def __init__(self, scope: Scope, body: Body, send: Send) -> None:
        self._scope = scope
        self._body = body
        self._send = send
        self._closes = False

    async def send(self, message: Message) -> None:
        """ASGI's send."""
        if message["type"] == "http.response.start":
            message = {**message, "headers": self._headers(message["headers"])}
        elif self._closes and not message.get("more_body") and not self._body.ended:
            await self._send({**message, "more_body": True})
            await self._body.drain()
            message = {"type": "http.response.body", "body": b"", "more_body": False}
        await self._send(message)

    def _headers(self, headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        complete = [*headers, *SECURITY_HEADERS]
        self._closes = (b"connection", b"close") in complete
        if any(name == b"content-type" and value.startswith(b"text/html") for name, value in complete):
            is_docs = self._scope["path"].startswith(DOCS_PATH)
            complete.append((b"content-security-policy", DOCS_POLICY if is_docs else PAGE_POLICY))
        return complete


def known_names(settings: Settings) -> frozenset[str]:
    """Host names that this service answers to."""
    names = set(LOOPBACK_NAMES) | {settings.host.lower(), *map(allowed_name, settings.allowed_hosts)}
    if not is_loopback(settings.host):
        names.add(socket.gethostname().lower())
    return frozenset(names)


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def too_large() -> Problem:
    limit = bounds.MAX_BODY_BYTES // 1024
    detail = f"A request's body may have {limit} KiB. No model's structure and no profile is larger."
    return Problem(413, "too-large", "The body is too large", detail, {}, CLOSE)


def slow_body() -> Problem:
    detail = f"The body did not arrive within {bounds.MAX_BODY_SECONDS:.0f} seconds."
    return Problem(408, "too-slow", "The body came too slowly", detail, {}, CLOSE)


def twice() -> Problem:
    return Problem(400, "twice", "A header is there twice", "Host, Origin and Content-Length come once.")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _take_absolute(scope: Scope) -> None:
    """A whole URL in the place of a path, as a client sends it through a proxy that only passes on: the host that it
    names counts, whatever the header says (RFC 9112, 3.2.2)."""
    if scope["path"].startswith("/"):
        return
    scheme, _, target = scope["raw_path"].partition(b"://")
    if scheme.lower() in (b"http", b"https"):
        authority, _, path = target.partition(b"/")
        scope["raw_path"] = b"/" + path
        scope["path"] = unquote(scope["raw_path"].decode("ascii"))
        scope["headers"] = [*(pair for pair in scope["headers"] if pair[0] != b"host"), (b"host", authority)]


def _single_headers(pairs: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """The headers looked at here. Raises Problem when one of them is there twice: two readers may then disagree."""
    found: dict[bytes, bytes] = {}
    for name, value in pairs:
        if name in (b"host", b"origin", b"content-length"):
            if name in found:
                raise twice()
            found[name] = value
    return found


def _check_length(value: bytes | None) -> None:
    if value is not None and value.isdigit() and int(value[:20]) > bounds.MAX_BODY_BYTES:
        raise too_large()
