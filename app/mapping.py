"""A map: which plan wins over batch and width of a network."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from app import labjobs
from app.advisor.curves.crossover import batch_grid
from app.advisor.curves.winners import Cell, winners
from app.advisor.plans import candidate_plans, must_ask_torch, profiled_plans
from app.advisor.recommendation import Reason, Recommendation, fields_of, plan_name
from app.advisor.request import Request
from app.answering.grounds import Grounds
from app.answering.measuring_time import LEAST_MEASURING_SECONDS
from app.answering.recommending import Recommending
from app.errors import LabError
from app.keeping import OnProgress, parse_sent, say_nothing
from app.service import Crosspoint
from probes.workload.description import InvalidModel, ModelDescription, Plan, Workload
from probes.workload.widths import widen

SCHEMA_VERSION = "1"
# Reasons that are about a row as a whole: how far its times can be trusted, and what it leaves out. What they say of
# the machine is the same for each width, but for figures that change from minute to minute.
OF_THE_MACHINE = frozenset(
    {
        "no-survey",
        "stale-profile",
        "noisy-profile",
        "slower-than-calibrated",
        "crowded",
        "busy-device",
        "sick-device",
        "unknown-device",
        "device-not-measured",
        "precision-not-there",
        "threads-not-calibrated",
    }
)
OF_A_WIDTH = frozenset(
    {
        "other-machine",
        "no-calibration",
        "no-copies",
        "not-reached",
        "not-measured",
        "not-traced",
        "not-saved",
        "free-memory-unknown",
        "slow-cores",
        "noise",
        "experts-evenly-chosen",
        "layers-dropped",
        "untrained-parts",
        "unknown-work",
    }
)
# Those of them that hang on what a time rests on, which is not the same in each cell: one was measured, the next is
# predicted.
OF_A_TIME = frozenset(
    {
        "noisy-profile",
        "crowded",
        "busy-device",
        "sick-device",
        "free-memory-unknown",
        "slow-cores",
        "noise",
        "experts-evenly-chosen",
        "layers-dropped",
        "unknown-work",
        "threads-not-calibrated",
    }
)


@dataclass(frozen=True, slots=True)
class Row:
    """One width. why_not: why there is nothing in it; cells are then empty. failure: where that is not for its width,
    which can be had, but for what became of it then. reasons: those of its answer and its cells that are about the
    whole of it. parameters: trainable scalars; all_parameters: trained or not."""

    width: float
    parameters: int | None
    cells: tuple[Cell, ...]
    why_not: str | None = None
    failure: LabError | None = None
    reasons: tuple[Reason, ...] = ()
    all_parameters: int | None = None


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
            for key, reason in _once_each(row.reasons).items():
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
                    "all_parameters": row.all_parameters,
                    "why_not": row.why_not,
                    "cells": [cell.to_json() for cell in row.cells],
                }
                for row in self.rows
            ],
        }


def _once_each(reasons: Iterable[Reason]) -> dict[tuple[str, ...], Reason]:
    """By what makes them the same, as of one card; the last of each."""
    return {(reason.code, _subject(reason)): reason for reason in reasons}


def _subject(reason: Reason) -> str:
    return str(reason.evidence.get("device", "")) if reason.code in OF_THE_MACHINE else reason.text


async def draw_map(
    crosspoint: Crosspoint, request: Request, widths: Sequence[float], on_progress: OnProgress | None = None
) -> Map:
    """The map up to the request's batch size. Above effort `instant` each width is measured first, at a middle batch of
    those that fit, within what the effort allows a question. What goes wrong at a width costs its row. Raises
    InvalidRequest, UnknownProfile, and StoreError where nobody can look that up."""
    await _check_asked(crosspoint, request)
    sizes = batch_grid(request.workload.batch_size)
    chosen = sorted(set(widths))
    rows = [
        await _row(crosspoint, request, width, sizes, _part_of(on_progress or say_nothing, place, len(chosen), width))
        for place, width in enumerate(chosen)
    ]
    return Map(request.workload, sizes, tuple(rows), request.profile)


async def _check_asked(crosspoint: Crosspoint, request: Request) -> None:
    """Before a process is started for the first width. Cards that torch has to be asked for are left to it. Raises
    InvalidRequest, UnknownProfile, StoreError."""
    survey = await crosspoint.survey_tried_twice()
    profile = await crosspoint.profile(survey, request.profile) if request.profile is not None else None
    if profile is not None and profile.fingerprint != survey.fingerprint:
        profiled_plans(profile, request)
    elif not must_ask_torch(survey):
        candidate_plans(survey, request)


def _part_of(on_progress: OnProgress, place: int, count: int, width: float) -> OnProgress:
    """Tells of one width of several as a part of the whole, which never becomes less: a width may be asked about more
    than once."""
    reached = 0.0

    def say(fraction: float, message: str) -> None:
        nonlocal reached
        reached = max(reached, fraction)
        on_progress((place + reached) / count, f"width {width:g}: {message}")

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
    asked = replace(request, workload=replace(request.workload, model=model))
    try:
        answer, cells = await _answered(crosspoint, asked, sizes, on_progress)
    except LabError as error:
        return Row(width, None, (), str(error), error)
    reasons = _reasons_of(answer, cells)
    return Row(width, answer.parameters, tuple(cells), reasons=reasons, all_parameters=answer.all_parameters)


async def _answered(
    crosspoint: Crosspoint, asked: Request, sizes: Sequence[int], on_progress: OnProgress
) -> tuple[Recommendation, list[Cell]]:
    """The answer at the middle one of the sizes that may fit, and a cell for each size. Where its own size does not fit
    after all, as where all plans ran out of memory there, it is asked again among those that are left, in what is left
    of the time. Raises LabError: of a model that cannot be traced also where it ran out of memory, as nothing tells
    then what would fit."""
    measures = asked.effort != "instant"
    left = await _fitting(crosspoint, asked, sizes, on_progress) if measures else list(sizes)
    while True:
        middle = left[len(left) // 2]
        asking, answer, cells = await _ask(crosspoint, asked, middle, sizes, on_progress)
        may_run = {cell.batch_size for cell in cells if cell.may_run}
        left = [size for size in left if size in may_run]
        seconds = asking.measuring_seconds_left()
        if not left or middle in left or (measures and seconds < LEAST_MEASURING_SECONDS):
            return answer, cells
        asked = replace(asked, time_limit_seconds=seconds if measures else None)


async def _fitting(crosspoint: Crosspoint, asked: Request, sizes: Sequence[int], on_progress: OnProgress) -> list[int]:
    """The sizes at which a plan may run, by an answer that measures nothing. The smallest where none may: when its turn
    has come there may be more memory. All where there is no such answer: what cannot be traced can be measured."""
    instant = replace(asked, effort="instant", time_limit_seconds=None)
    try:
        _, _, cells = await _ask(crosspoint, instant, sizes[len(sizes) // 2], sizes, on_progress)
    except LabError:
        return list(sizes)
    return [cell.batch_size for cell in cells if cell.may_run] or list(sizes[:1])


async def _ask(
    crosspoint: Crosspoint, asked: Request, batch_size: int, sizes: Sequence[int], on_progress: OnProgress
) -> tuple[Recommending, Recommendation, list[Cell]]:
    """At this batch size, with a cell for each of the sizes. Traces, measures where that is asked for, and keeps both.
    Raises LabError."""
    there = replace(asked, workload=replace(asked.workload, batch_size=batch_size))
    asking = Recommending(crosspoint, there, on_progress, None)
    answer = await asking.answer()
    cells = await asyncio.to_thread(_cells, asking.grounds, there, sizes) if asking.grounds is not None else []
    return asking, answer, cells


def _reasons_of(answer: Recommendation, cells: Iterable[Cell]) -> tuple[Reason, ...]:
    """Those of the row as a whole. What is told only once is told in the words of the largest batch, which is not the
    one that was measured."""
    of_answer = [reason for reason in answer.reasons if reason.code in OF_THE_MACHINE | OF_A_WIDTH]
    of_cells = [reason for cell in cells for reason in cell.reasons if reason.code in OF_A_TIME]
    return tuple(_once_each([*of_answer, *of_cells]).values())


def _cells(grounds: Grounds, asked: Request, sizes: Sequence[int]) -> list[Cell]:
    known = (grounds.survey, grounds.profile, grounds.trace, grounds.measurements)
    unreadable = grounds.unreadable
    return winners(*known, asked, sizes, grounds.experience, captured=grounds.captured, unreadable=unreadable)


async def _wider(crosspoint: Crosspoint, model: ModelDescription, width: float) -> ModelDescription:
    """Raises InvalidModel, and LabError with the same words where a config's own class says no."""
    if model.kind != "huggingface" or width == 1.0:
        return await asyncio.to_thread(widen, model, width)
    sent = await crosspoint.lab.run(labjobs.widen_job(model, width))
    return parse_sent(lambda document: ModelDescription.from_json(document["model"]), sent)
