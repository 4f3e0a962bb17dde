"""A map rests on what its answers rest on, and says what they say of that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from app.advisor.recommendation import Reason
from app.advisor.request import Request
from app.errors import StoreError
from app.mapping import Map, Row, draw_map
from app.service import Crosspoint
from tests.app.advisor.machine import a_profile
from tests.app.answering.test_recommending import IRIS, obedient
from tests.app.opened import with_crosspoint

SMALL = Request(replace(IRIS, batch_size=16), effort="quick")


@pytest.fixture(autouse=True)
def own_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))


async def keep_trace(crosspoint: Crosspoint) -> None:
    """Of something else, so that no process has to make one."""
    survey = await crosspoint.survey()
    version = survey.software.torch.version if survey.software.torch else None
    await crosspoint.store.keep_trace(IRIS, version or "unknown", a_profile().networks[0].trace)


def test_what_could_not_be_saved_is_in_the_picture_and_the_reason_beneath(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: object) -> None:
        raise StoreError("It was not saved: the disk is full.")

    async def use(crosspoint: Crosspoint) -> Map:
        await keep_trace(crosspoint)
        monkeypatch.setattr(crosspoint.store, "keep_measurements", full)
        return await draw_map(crosspoint, SMALL, [1.0])

    drawn = with_crosspoint(tmp_path, use, obedient(tmp_path / "jobs"))
    (row,) = drawn.rows
    assert "measured" in {cell.basis for cell in row.cells}
    assert "not-saved" in {told.reason.code for told in drawn.reasons}


def test_a_machine_that_is_busy_is_told_as_a_recommendation_tells_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.answering.recommending.LEAST_PATIENCE_SECONDS", 0.2)

    async def use(crosspoint: Crosspoint) -> Map:
        await keep_trace(crosspoint)
        held = crosspoint.lab.reserve(600)
        drawn = await draw_map(crosspoint, replace(SMALL, time_limit_seconds=0.1), [1.0])
        crosspoint.lab.release(held)
        return drawn

    drawn = with_crosspoint(tmp_path, use)
    (told,) = [told for told in drawn.reasons if told.reason.code == "not-measured"]
    assert "busy" in told.reason.text
    assert told.widths == (1.0,)
    assert told.to_json() in drawn.to_json()["reasons"]


def test_a_map_of_a_captured_machine_advises_nothing_that_cannot_be_done_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use(crosspoint: Crosspoint) -> Map:
        await keep_trace(crosspoint)
        return await draw_map(crosspoint, replace(SMALL, effort="instant"), [1.0])

    here = with_crosspoint(tmp_path, use)
    monkeypatch.setattr(Crosspoint, "is_here", False)
    captured = with_crosspoint(tmp_path, use)
    for drawn, is_advised in ((here, True), (captured, False)):
        (row,) = drawn.rows
        assert row.cells
        assert all(("crosspoint calibrate" in (cell.why_not or "")) is is_advised for cell in row.cells)
        assert all(cell.why_not for cell in row.cells)


def test_a_sentence_is_told_once_with_the_widths_that_it_is_about() -> None:
    def row(width: float, *reasons: Reason) -> Row:
        return Row(width, None, (), reasons=reasons)

    none = Reason("no-calibration", "Nothing is known.")
    crowds = [Reason("crowded", f"Others hold {count} cores.") for count in (1, 2)]
    failed = Reason("not-measured", "It failed.", {"possible": True})
    drawn = Map(IRIS, (1,), (row(0.5, none, crowds[0]), row(1.0, none, crowds[1], failed)))
    assert [(told.reason, told.widths) for told in drawn.reasons] == [
        (none, (0.5, 1.0)),
        (crowds[1], (0.5, 1.0)),
        (failed, (1.0,)),
    ]
