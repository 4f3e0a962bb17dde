"""A map: which plan wins over batch and width of a network."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from app import labjobs
from app.advisor.curves.crossover import batch_grid
from app.advisor.curves.winners import Cell, winners
from app.advisor.recommendation import Reason, fields_of, plan_name
from app.advisor.request import Request
from app.answering.grounds import Grounds
from app.answering.recommending import Recommending
from app.errors import LabError
from app.keeping import OnProgress, parse_sent, say_nothing
from app.service import Crosspoint
from probes.workload.description import InvalidModel, ModelDescription, Plan, Workload
from probes.workload.widths import widen

SCHEMA_VERSION = "1"
# Reasons that are about every cell of a row: how far its times can be trusted, and what it leaves out. What they say of
# the machine is the same for each width, but for figures that change from minute to minute.
OF_THE_MACHINE = frozenset(
    {"no-survey", "other-machine", "stale-profile", "noisy-profile", "crowded", "unknown-device", "device-not-measured"}
)
OF_A_WIDTH = frozenset(
    {
        "no-calibration",
        "not-reached",
        "not-measured",
        "not-traced",
        "not-saved",
        "experts-evenly-chosen",
        "unknown-work",
    }
)


@dataclass(frozen=True, slots=True)
class Row:
    """One width. why_not: why there is nothing in it; cells are then empty. failure: where that is not for its width,
    which can be had, but for what became of it then. reasons: those of its answer that are about all of its cells."""

    width: float
    parameters: int | None
    cells: tuple[Cell, ...]
    why_not: str | None = None
    failure: LabError | None = None
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class Told:
    """A reason, and the widths that it is about."""

    reason: Reason
    widths: tuple[float, ...]

    def to_json(self) -> dict[str, Any]:
        return {**fields_of(self.reason), "widths": list(self.widths)}


@dataclass(frozen=True, slots=True)
class Map:
    """Rows by rising width, cells by rising batch size. profile: the name of the one that was asked for. plans: those
    that win anywhere. reasons: how far this can be trusted, and what it leaves out."""

    workload: Workload
    batch_sizes: tuple[int, ...]
    rows: tuple[Row, ...]
    profile: str | None = None

    @property
    def plans(self) -> tuple[Plan, ...]:
        cells = [cell for row in self.rows for cell in row.cells]
        return tuple({cell.plan.key: cell.plan for cell in cells if cell.plan is not None}.values())

    @property
    def reasons(self) -> tuple[Told, ...]:
        """Each once, with its widths."""
        widths: dict[tuple[str, ...], list[float]] = {}
        found: dict[tuple[str, ...], Reason] = {}
        for row in self.rows:
            for reason in row.reasons:
                key = (reason.code,) if reason.code in OF_THE_MACHINE else (reason.code, reason.text)
                found[key] = reason
                widths.setdefault(key, []).append(row.width)
        return tuple(Told(reason, tuple(widths[key])) for key, reason in found.items())

    def to_json(self) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA_VERSION,
            "workload": {
                "model": self.workload.model.name,
                "mode": self.workload.mode,
                "optimizer": self.workload.optimizer,
                "data": self.workload.data,
            },
            "profile": self.profile,
            "batch_sizes": list(self.batch_sizes),
            "plans": [plan_name(plan) for plan in self.plans],
            "reasons": [told.to_json() for told in self.reasons],
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
    crosspoint: Crosspoint, request: Request, widths: Sequence[float], on_progress: OnProgress | None = None
) -> Map:
    """The map up to the request's batch size. Above effort `instant` each width is measured first, at a middle batch,
    within what the effort allows a question. What goes wrong at a width costs its row. Raises InvalidRequest,
    UnknownProfile, and StoreError where nobody can look that up."""
    sizes = batch_grid(request.workload.batch_size)
    chosen = sorted(set(widths))
    rows = [
        await _row(crosspoint, request, width, sizes, _part_of(on_progress or say_nothing, place, len(chosen), width))
        for place, width in enumerate(chosen)
    ]
    return Map(request.workload, sizes, tuple(rows), request.profile)


def _part_of(on_progress: OnProgress, place: int, count: int, width: float) -> OnProgress:
    """Tells of one width of several as a part of the whole."""

    def say(fraction: float, message: str) -> None:
        on_progress((place + fraction) / count, f"width {width:g}: {message}")

    return say


async def _row(
    crosspoint: Crosspoint, request: Request, width: float, sizes: tuple[int, ...], on_progress: OnProgress
) -> Row:
    on_progress(0.0, "looking")
    try:
        model = await _wider(crosspoint, request.workload.model, width)
    except InvalidModel as error:
        return Row(width, None, (), str(error))
    except LabError as error:
        return Row(width, None, (), str(error), None if error.code == "invalid-model" else error)
    middle = sizes[len(sizes) // 2]
    there = replace(request, workload=replace(request.workload, model=model, batch_size=middle))
    try:
        asking = Recommending(crosspoint, there, on_progress, None)
        answer = await asking.answer()  # traces, measures where that was asked for, and keeps both
    except LabError as error:
        return Row(width, None, (), str(error), error)
    cells = await asyncio.to_thread(_cells, asking.grounds, there, sizes) if asking.grounds is not None else []
    reasons = [reason for reason in answer.reasons if reason.code in OF_THE_MACHINE | OF_A_WIDTH]
    return Row(width, answer.parameters, tuple(cells), reasons=tuple(reasons))


def _cells(grounds: Grounds, asked: Request, sizes: tuple[int, ...]) -> list[Cell]:
    known = (grounds.survey, grounds.profile, grounds.trace, grounds.measurements)
    return winners(*known, asked, sizes, grounds.experience, captured=grounds.captured)


async def _wider(crosspoint: Crosspoint, model: ModelDescription, width: float) -> ModelDescription:
    """Raises InvalidModel, and LabError with the same words where a config's own class says no."""
    if model.kind != "huggingface" or width == 1.0:
        return await asyncio.to_thread(widen, model, width)
    sent = await crosspoint.lab.run(labjobs.widen_job(model, width))
    return parse_sent(lambda document: ModelDescription.from_json(document["model"]), sent)
