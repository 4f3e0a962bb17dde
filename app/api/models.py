"""GET /models: the models known by name."""

from __future__ import annotations

import asyncio
import difflib
from functools import cache
from typing import Any

from fastapi import APIRouter, Response

from app.api.context import answer_json
from app.api.openapi import describe_answer
from app.api.problems import Problem
from probes import bounds
from probes.workload.catalogue import CatalogueRow, list_models
from probes.workload.description import ModelDescription

# What checking layers adds to them, and to one of them.
INFERRED = frozenset({"output_shape", "class_axis", "tokens"})
INFERRED_OPTIONS = frozenset({"steps", "features"})

router = APIRouter(prefix="/models", tags=["models"])


@router.get("", responses=describe_answer("ModelList", "The catalogue."))
async def read_models() -> Response:
    """Every model of the catalogue."""
    return answer_json({"models": await asyncio.to_thread(catalogue)})


@router.get("/{name}", responses=describe_answer("CatalogueModel", "One model, with its description."))
async def read_model(name: str) -> Response:
    """One model of the catalogue; its description can be changed and asked about."""
    rows = await asyncio.to_thread(list_models)
    for row in rows:
        if row.name == name:
            return answer_json({**show_row(row), "model": write(row.description)})
    near = difflib.get_close_matches(
        name[: bounds.MAX_ECHO_CHARACTERS], [row.name for row in rows], bounds.MAX_SUGGESTIONS
    )
    raise Problem(
        404, "unknown-model", "Unknown model", "No model has this name. GET /models lists all.", {"suggestions": near}
    )


@cache
def catalogue() -> list[dict[str, Any]]:
    """The catalogue's rows without their descriptions."""
    return [show_row(row) for row in list_models()]


def show_row(row: CatalogueRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "family": row.family,
        "summary": row.summary,
        "parameters": row.parameters,
        "source": row.source,
    }


def write(description: ModelDescription) -> dict[str, Any]:
    """A checked description as a request writes it: what was inferred goes, and checking it gives the same again."""
    content = {name: value for name, value in description.content.items() if value is not None}
    if description.kind == "huggingface":
        return {"huggingface": content.pop("config"), **content}
    if description.kind == "layers":
        written = {name: value for name, value in content.items() if name not in INFERRED}
        return {**written, "layers": [_written_layer(layer) for layer in content["layers"]]}
    return {description.kind: content}


def _written_layer(layer: dict[str, Any]) -> dict[str, Any]:
    written = {name: value for name, value in layer.items() if name not in INFERRED_OPTIONS}
    if isinstance(inner := layer.get("layers"), list):
        written["layers"] = [_written_layer(each) for each in inner]
    return written
