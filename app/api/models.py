"""GET /models: the models known by name."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any

from fastapi import APIRouter, Response

from app.api.context import answer_json
from app.api.openapi import describe_answer
from app.api.problems import Problem
from probes.workload.catalogue import find_row, list_models
from probes.workload.description import InvalidModel
from probes.workload.written import write_row

router = APIRouter(prefix="/models", tags=["models"])


@router.get("", responses=describe_answer("ModelList", "The catalogue."))
async def read_models() -> Response:
    """Every model of the catalogue."""
    return answer_json({"models": await asyncio.to_thread(catalogue)})


@router.get("/{name}", responses=describe_answer("CatalogueModel", "One model, with its description."))
async def read_model(name: str) -> Response:
    """One model of the catalogue, by name or alias; its description can be changed and asked about."""
    try:
        row = await asyncio.to_thread(find_row, name)
    except InvalidModel as error:
        detail, near = "No model has this name. GET /models lists all.", list(error.suggestions)
        raise Problem(404, "unknown-model", "Unknown model", detail, {"suggestions": near}) from None
    return answer_json(write_row(row))


@cache
def catalogue() -> list[dict[str, Any]]:
    """The catalogue's rows without their descriptions."""
    return [row.to_json() for row in list_models()]
