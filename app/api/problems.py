"""Problem documents (RFC 9457): one table from exceptions to answers.

A problem's words are ours: they never repeat input, a path or a traceback.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from app.advisor.request import InvalidRequest
from app.api.allowed import allowed_methods
from app.api.echo import without_echo
from app.errors import (
    RETRY_SECONDS,
    CrosspointError,
    FeedRefused,
    LabBusy,
    LabError,
    ProfileRefused,
    StoreError,
    UnknownProfile,
)
from probes.workload.description import InvalidModel

MEDIA_TYPE = "application/problem+json"
log = logging.getLogger(__name__)


@dataclass(eq=False)
class Problem(Exception):
    """An answer that says no. code: stable, the last part of the problem's type. more: further members."""

    status: int
    code: str
    title: str
    detail: str
    more: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    def body(self) -> bytes:
        document = {
            "type": f"/problems/{self.code}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            **self.more,
        }
        return json.dumps(document, ensure_ascii=True).encode()

    def response(self) -> Response:
        return Response(self.body(), self.status, dict(self.headers), MEDIA_TYPE)


# Whose sentences name what is known here, and nothing of what was asked: they stay whole.
OURS_ALONE = (Problem, InvalidRequest, UnknownProfile)

# Codes of a LabError that are the user's to mend (docs/protocol.md); any other one is this machine's.
_MODEL_CODES = frozenset({"invalid-model", "invalid-job", "unsupported"})

_STATUS_SENTENCES: dict[int, tuple[str, str, str]] = {
    404: ("not-found", "Not found", "Nothing lives at this address. GET /docs lists what does."),
    405: ("method-not-allowed", "Method not allowed", "This address does not answer that method; Allow says which."),
}


def problem_from(error: Exception) -> Problem:
    """The one table. What it does not know is a fault of ours: 500, and the log says more."""
    match error:
        case Problem():
            return error
        case InvalidModel() | InvalidRequest():
            code = "invalid-model" if isinstance(error, InvalidModel) else "invalid-request"
            title = "The model cannot be used" if isinstance(error, InvalidModel) else "The request cannot be answered"
            return Problem(422, code, title, str(error), {"suggestions": list(error.suggestions)})
        case UnknownProfile():
            return Problem(422, error.code, "Unknown profile", str(error), {"suggestions": list(error.suggestions)})
        case ProfileRefused():
            taken = error.code == "profile-exists"
            title = "The name is taken" if taken else "The profile cannot be used"
            return Problem(409 if taken else 422, error.code, title, str(error))
        case LabBusy():
            headers = {"Retry-After": str(error.retry_after_seconds)}
            return Problem(429, error.code, "The machine is busy", str(error), {}, headers)
        case FeedRefused():
            refused = (429, {"Retry-After": "5"}) if error.code == "too-many-listeners" else (409, {})
            return Problem(refused[0], error.code, "There is nothing to listen to now", str(error), {}, refused[1])
        case LabError() if error.code in _MODEL_CODES:
            return Problem(422, error.code, "The model cannot be used", str(error))
        case StoreError():
            headers = {"Retry-After": str(RETRY_SECONDS)}
            return Problem(503, error.code, "The store could not be used", str(error), {}, headers)
        case LabError():
            headers = {"Retry-After": str(error.retry_after_seconds)}
            return Problem(503, error.code, "Measuring or tracing failed", str(error), {}, headers)
        case CrosspointError():
            return Problem(503, error.code, "It could not be done", str(error), {}, {"Retry-After": str(RETRY_SECONDS)})
        case HTTPException() if error.status_code in _STATUS_SENTENCES:
            return Problem(error.status_code, *_STATUS_SENTENCES[error.status_code], {}, dict(error.headers or {}))
        case HTTPException() if error.status_code < 500:
            return Problem(error.status_code, "refused", "The request was refused", "The request could not be served.")
    return Problem(500, "fault", "A fault in crosspoint", "crosspoint failed to answer; its log says where.")


def install_problems(app: FastAPI) -> None:
    """Let every error of the application leave as a problem."""
    for kind in (Problem, InvalidModel, InvalidRequest, CrosspointError, HTTPException, Exception):
        app.add_exception_handler(kind, _answer)


async def _answer(request: Request, error: Exception) -> Response:
    problem = problem_from(error)
    if problem.status == 405:
        allowed = allowed_methods(request.app.routes, request.scope["path"])
        problem.headers = {**problem.headers, "Allow": ", ".join(allowed)}
    sent = list(getattr(error, "theirs", ())) or getattr(request.state, "sent", None)
    if sent is not None and not isinstance(error, OURS_ALONE):
        problem.detail = await asyncio.to_thread(without_echo, problem.detail, sent)
    return problem.response()
