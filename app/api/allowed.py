"""Which methods an address answers: those of all routes that live there, where the framework tells the first one's."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.routing import BaseRoute, Match, Mount
from starlette.types import Scope

from app.api.head import STREAMS

METHODS = ("GET", "PUT", "POST", "PATCH", "DELETE")


def allowed_methods(routes: Iterable[BaseRoute], path: str) -> tuple[str, ...]:
    """For the header Allow. HEAD is answered wherever GET is, event streams apart (app.api.head)."""
    found = tuple(method for method in METHODS if any(_answers(route, path, method) for route in routes))
    return ("HEAD", *found) if "GET" in found and not path.endswith(STREAMS) else found


def _answers(route: BaseRoute, path: str, method: str) -> bool:
    scope: Scope = {"type": "http", "method": method, "path": path, "root_path": "", "headers": []}
    is_its = route.matches(scope)[0] is Match.FULL
    return is_its and (method == "GET" or not isinstance(route, Mount))  # what is mounted are files
