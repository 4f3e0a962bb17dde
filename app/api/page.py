"""GET /: the page, and what it loads."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, FastAPI, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from app.web.page import STATIC, read_page

router = APIRouter(include_in_schema=False)

# Ask each time whether it has changed, which costs a 304. Else a browser may take a file from its cache for a tenth of
# its age (RFC 9111, 4.2.2), and after an update a new page would run with old scripts.
FRESH = {"Cache-Control": "no-cache"}


@router.get("/")
def show_page() -> Response:
    return Response(read_page(), media_type="text/html; charset=utf-8", headers=FRESH)


class FreshFiles(StaticFiles):
    """Files that a browser keeps, and asks about before it uses them. They are small and given whole: a Range may be
    ignored (RFC 9110, 14.2), and one that starlette cannot read it would refuse in plain text, not as a problem."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [pair for pair in scope["headers"] if pair[0] != b"range"]
        await super().__call__({**scope, "headers": headers}, receive, send)

    def file_response(self, *arguments: Any, **options: Any) -> Response:
        response = super().file_response(*arguments, **options)
        response.headers.update({**FRESH, "Accept-Ranges": "none"})
        return response


def mount_static(app: FastAPI) -> None:
    app.mount("/static", FreshFiles(directory=STATIC, check_dir=False), name="static")
