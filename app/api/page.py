"""GET /: the page, and what it loads."""

from __future__ import annotations

from fastapi import APIRouter, FastAPI, Response
from starlette.staticfiles import StaticFiles

from app.web.page import STATIC, read_page

router = APIRouter(include_in_schema=False)


@router.get("/")
def show_page() -> Response:
    return Response(read_page(), media_type="text/html; charset=utf-8")


def mount_static(app: FastAPI) -> None:
    app.mount("/static", StaticFiles(directory=STATIC, check_dir=False), name="static")
