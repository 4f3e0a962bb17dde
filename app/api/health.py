"""/livez, /readyz, /healthz: from what is known already; none of them touches a device or the disk."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response

from app.api.context import Context, ContextDep, answer_json
from app.api.openapi import describe_answer

LIVE = b'{"status":"ok"}'
router = APIRouter(tags=["health"])


@router.get("/livez", responses=describe_answer("Health", "The event loop turns."))
async def read_live() -> Response:
    """Whether this process still answers. A sick device does not change it: a restart would not heal one."""
    return Response(LIVE, media_type="application/json")


async def live_body(_context: Context) -> bytes:
    """The body of GET /livez."""
    return LIVE


NOT_YET = describe_answer("Health", "Not yet ready: the same document, `status` starting.", 503)


@router.get("/readyz", responses={**describe_answer("Health", "Ready."), **NOT_YET})
async def read_ready(context: ContextDep) -> Response:
    """Whether the first survey is done or timed out, and the store was opened."""
    document = describe_readiness(context)
    return answer_json(document, 200 if document["status"] == "ok" else 503)


@router.get("/healthz", responses={**describe_answer("Health", "Both, in detail."), **NOT_YET})
async def read_health(context: ContextDep) -> Response:
    """Readiness with the probes' outcomes, the lab, the store and the calibration."""
    document = {**describe_readiness(context), **describe_details(context)}
    return answer_json(document, 200 if document["status"] == "ok" else 503)


def describe_readiness(context: Context) -> dict[str, Any]:
    """warnings: what is wrong with the machine or the store; none of it makes the service less ready."""
    reading = context.crosspoint.surveyor.latest
    ready = reading is not None and context.upkeep.store_opened
    warnings = []
    if reading is not None:
        warnings = [finding.message for finding in reading.survey.findings if finding.severity != "info"]
    if context.crosspoint.store.trouble is not None:
        warnings.append(f"Nothing is saved: {context.crosspoint.store.trouble}.")
    if context.crosspoint.store.lost is not None:
        warnings.append(context.crosspoint.store.lost)
    return {"status": "ok" if ready else "starting", "warnings": warnings}


def describe_details(context: Context) -> dict[str, Any]:
    reading = context.crosspoint.surveyor.latest
    probes = reading.survey.probes if reading is not None else {}
    lab = context.crosspoint.lab
    return {
        "probes": {name: report.outcome for name, report in probes.items()},
        "store": {"trouble": context.crosspoint.store.trouble},
        "lab": {"measuring": lab.measuring, "waiting": lab.waiting, "tracer_is_warm": lab.tracer_is_warm},
        "calibration": context.upkeep.calibration,
    }
