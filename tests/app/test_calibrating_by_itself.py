"""What a service does by itself where a calibration breaks, or would."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from app.errors import LabError
from app.service import Crosspoint
from app.upkeep import BROKEN_IN_A_ROW, CALIBRATION_BYTES, RETRY_SECONDS, Upkeep
from probes import survey as surveys
from probes.hardware import Survey
from tests.app.advisor.build import a_gpu
from tests.app.advisor.machine import a_profile
from tests.app.calibrating import calibrating
from tests.app.opened import with_crosspoint
from tests.app.serving import PATIENCE_SECONDS

CRASHES = 'os.kill(os.getpid(), signal.SIGSEGV) if "cuda:0" in job["devices"] else None'
IS_KILLED = 'os.kill(os.getpid(), signal.SIGKILL) if "cuda:0" in job["devices"] else None'
HANGS = 'time.sleep(600) if "cuda:0" in job["devices"] else None'
IS_BUSY = ('say(event="failed", job=job["job"], code="too-busy", reason="Others hold the cores.")', "continue")


@pytest.fixture(autouse=True)
def card(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """This machine with a card, and a measurement slot of its own."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    take = surveys.take_survey

    def with_card(*arguments: Any, **named: Any) -> Survey:
        return replace(take(*arguments, **named), accelerators=(a_gpu(),))

    monkeypatch.setattr("probes.survey.take_survey", with_card)


def devices_tried(folder: Path) -> list[list[str]]:
    return [json.loads(line)["devices"] for line in (folder / "jobs").read_text(encoding="utf-8").splitlines()]


async def look(upkeep: Upkeep, crosspoint: Crosspoint) -> None:
    await upkeep._calibrate_if_due(await crosspoint.survey())


@pytest.mark.parametrize("end", [CRASHES, IS_KILLED, HANGS], ids=("crashes", "is-killed", "hangs"))
def test_after_calibrations_that_broke_the_next_leaves_cards_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """Else a card that hangs costs the CPU's times, too, with each try. The one after that has it again."""

    async def use(crosspoint: Crosspoint) -> None:
        seconds = {"to break": 2.0 if end == HANGS else 60.0, "to be done": 60.0}
        upkeep, deadline = Upkeep(crosspoint), "to break"
        monkeypatch.setattr(crosspoint.lab, "deadline", lambda _: seconds[deadline])
        for _ in range(BROKEN_IN_A_ROW):
            await look(upkeep, crosspoint)
            assert upkeep.calibration["state"] == "failed"
        deadline = "to be done"
        await look(upkeep, crosspoint)
        assert upkeep.calibration["state"] == "done"
        deadline = "to break"
        with pytest.raises(LabError):
            await upkeep._calibrate("full")

    with_crosspoint(tmp_path, use, calibrating(tmp_path, end))
    assert devices_tried(tmp_path) == [*[["cpu", "cuda:0"]] * BROKEN_IN_A_ROW, ["cpu"], ["cpu", "cuda:0"]]


def test_a_busy_machine_is_no_fault_of_a_card(tmp_path: Path) -> None:
    async def use(crosspoint: Crosspoint) -> None:
        upkeep = Upkeep(crosspoint)
        for _ in range(2):
            await look(upkeep, crosspoint)
            why, when = upkeep.calibration["reason"].split(" It is tried again at ")
            assert why == "Others hold the cores."
            left = datetime.strptime(when, "%Y-%m-%dT%H:%M:%S%z.") - datetime.now(UTC)
            assert RETRY_SECONDS - PATIENCE_SECONDS < left.total_seconds() <= RETRY_SECONDS

    with_crosspoint(tmp_path, use, calibrating(tmp_path, *IS_BUSY))
    assert devices_tried(tmp_path) == [["cpu", "cuda:0"]] * 2


async def when_it_waits(crosspoint: Crosspoint, upkeep: Upkeep, come: Callable[[], Awaitable[object]]) -> None:
    """Look while somebody's measurement holds the machine; what comes does so before that ends."""
    ticket = crosspoint.lab.reserve(60.0)
    looking = asyncio.create_task(look(upkeep, crosspoint))
    while crosspoint.lab.waiting < 2:  # noqa: ASYNC110 - no event tells of it
        await asyncio.sleep(0.001)
    await come()
    crosspoint.lab.release(ticket)
    await asyncio.wait_for(looking, PATIENCE_SECONDS)
    assert upkeep.calibration == {"state": "done", "reason": None}


@pytest.mark.parametrize("is_brought", [False, True])
def test_a_first_calibration_is_not_made_where_a_profile_came_while_it_waited(
    tmp_path: Path, *, is_brought: bool
) -> None:
    """Somebody's calibration, for which it gave way, or a profile that was brought."""

    async def use(crosspoint: Crosspoint) -> None:
        profile = a_profile(fingerprint=(await crosspoint.survey()).fingerprint)

        async def come() -> None:
            await crosspoint.store.keep_profile(profile, None if is_brought else profile)

        await when_it_waits(crosspoint, Upkeep(crosspoint), come)
        assert await crosspoint.profile(await crosspoint.survey()) == profile

    with_crosspoint(tmp_path, use, calibrating(tmp_path))
    assert not (tmp_path / "jobs").exists()


def test_nor_is_a_further_one_made_minutes_too_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.upkeep.is_quiet", lambda _: True)

    async def use(crosspoint: Crosspoint) -> None:
        survey = await crosspoint.survey()
        profile = replace(a_profile(fingerprint=survey.fingerprint), name="named")
        await crosspoint.store.keep_profile(profile, profile)

        async def come() -> None:
            await crosspoint.store.keep_profile(profile, profile)

        monkeypatch.setattr("app.upkeep.AGAIN_SECONDS", (-1.0, 600.0))
        await when_it_waits(crosspoint, Upkeep(crosspoint), come)

    with_crosspoint(tmp_path, use, calibrating(tmp_path))
    assert not (tmp_path / "jobs").exists()


@pytest.mark.parametrize(
    ("usable", "state"), [(CALIBRATION_BYTES - 1, "failed"), (CALIBRATION_BYTES, "done"), (None, "done")]
)
def test_without_the_memory_for_a_calibration_none_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, usable: int | None, state: str
) -> None:
    """The kernel would kill it, or the service with it, every ten minutes."""
    take = surveys.take_survey

    def with_memory(*arguments: Any, **named: Any) -> Survey:
        survey = take(*arguments, **named)
        return replace(survey, memory=replace(survey.memory, usable_bytes=usable))

    monkeypatch.setattr("probes.survey.take_survey", with_memory)

    async def use(crosspoint: Crosspoint) -> None:
        upkeep = Upkeep(crosspoint)
        await look(upkeep, crosspoint)
        assert upkeep.calibration["state"] == state
        assert ("MB of memory" in (upkeep.calibration["reason"] or "")) == (state == "failed")

    with_crosspoint(tmp_path, use, calibrating(tmp_path))
    assert (tmp_path / "jobs").exists() == (state == "done")
