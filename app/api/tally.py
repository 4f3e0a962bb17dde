"""Counts what was asked, cheaply; GET /metrics turns the counts into Prometheus' text. Plain ASGI."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter

from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Seconds; from a cached answer to a thorough recommendation.
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Tally:
    """Requests by method, route and status, and a histogram of their time by route."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str, int]] = Counter()
        self.seconds: Counter[str] = Counter()
        self.buckets: dict[str, list[int]] = {}

    def add(self, method: str, route: str, status: int, seconds: float) -> None:
        self.requests[method, route, status] += 1
        self.seconds[route] += seconds  # type: ignore[assignment]
        counts = self.buckets.setdefault(route, [0] * (len(BUCKETS) + 1))
        counts[bisect_left(BUCKETS, seconds)] += 1


class Counting:
    """Adds each request to a tally. A route is the pattern, not the address: attackers must not make up labels."""

    def __init__(self, app: ASGIApp, tally: Tally) -> None:
        self._app = app
        self._tally = tally

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        status = 500

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watch)
        finally:
            route = getattr(scope.get("route"), "path", "(none)")
            self._tally.add(_known_method(scope["method"]), route, status, time.perf_counter() - started)


def _known_method(method: str) -> str:
    return method if method in ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS") else "(other)"
