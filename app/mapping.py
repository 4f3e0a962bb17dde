"""A map: which plan wins over batch and width of a network."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from app.advisor.crossover import batch_grid
from app.advisor.recommendation import plan_name
from app.advisor.request import Request
from app.advisor.winners import Cell, winners
from app.errors import LabError
from app.keeping import OnProgress
from app.service import Crosspoint
from probes.workload.description import InvalidModel, Plan, Workload
from probes.workload.widths import widen

SCHEMA_VERSION = "1"
WIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True, slots=True)
class Row:
    """One width. why_not: why there is nothing in it; cells are then empty."""

    width: float
    parameters: int | None
    cells: tuple[Cell, ...]
    why_not: str | None = None


@dataclass(frozen=True, slots=True)
class Map:
    """Rows by rising width, cells by rising batch size. plans: those that win anywhere."""

    workload: Workload
    batch_sizes: tuple[int, ...]
    rows: tuple[Row, ...]

    @property
    def plans(self) -> tuple[Plan, ...]:
        cells = [cell for row in self.rows for cell in row.cells]
        return tuple({cell.plan.key: cell.plan for cell in cells if cell.plan is not None}.values())

    def to_json(self) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA_VERSION,
            "workload": {
                "model": self.workload.model.name,
                "mode": self.workload.mode,
                "optimizer": self.workload.optimizer,
                "data": self.workload.data,
            },
            "batch_sizes": list(self.batch_sizes),
            "plans": [plan_name(plan) for plan in self.plans],
            "rows": [
                {
                    "width": row.width,
                    "parameters": row.parameters,
                    "why_not": row.why_not,
                    "cells": [cell.to_json() for cell in row.cells],
                }
                for row in self.rows
            ],
        }


async def draw_map(
    crosspoint: Crosspoint, request: Request, widths: Sequence[float] = WIDTHS, on_progress: OnProgress | None = None
) -> Map:
    """The map up to the request's batch size. Above effort `instant` each width is measured first, at a middle batch,
    within what the effort allows a question. Raises InvalidRequest, LabError when no width can be traced."""
    sizes = batch_grid(request.workload.batch_size)
    rows = []
    for place, width in enumerate(sorted(set(widths))):
        if on_progress is not None:
            on_progress(place / len(set(widths)), f"width {width:g}")
        rows.append(await _row(crosspoint, request, width, sizes))
    return Map(request.workload, sizes, tuple(rows))


async def _row(crosspoint: Crosspoint, request: Request, width: float, sizes: tuple[int, ...]) -> Row:
    try:
        model = await asyncio.to_thread(widen, request.workload.model, width)
    except InvalidModel as error:
        return Row(width, None, (), str(error))
    middle = sizes[len(sizes) // 2]
    there = replace(request, workload=replace(request.workload, model=model, batch_size=middle))
    try:
        answer = await crosspoint.recommend(there)  # traces, measures where that was asked for, and keeps both
        survey = await crosspoint.survey()
        profile = await crosspoint.profile(survey, request.profile)
        trace = await crosspoint.known_trace(survey, there.workload)
        here = profile is None or profile.fingerprint == survey.fingerprint
        measured = await crosspoint.measurements(survey, there.workload) if here else []
        cells = await asyncio.to_thread(winners, survey, profile, trace, measured, there, sizes)
    except LabError as error:
        return Row(width, None, (), str(error))
    return Row(width, answer.parameters, tuple(cells))
