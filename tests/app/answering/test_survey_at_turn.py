"""Who waited for the machine is answered by what is free when its turn has come."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.advisor.recommendation import Recommendation
from app.advisor.request import Request
from app.answering.survey_at_turn import SurveyAtTurn
from app.service import Crosspoint
from probes.hardware import Accelerator, Survey
from probes.profile import Profile
from tests.app.advisor.build import GB, ONE, a_gpu
from tests.app.advisor.machine import a_profile
from tests.app.answering.obedient import IRIS, ask, jobs, obedient
from tests.app.calibrating import calibrating
from tests.app.lab.programs import ECHO
from tests.app.opened import with_crosspoint

pytestmark = pytest.mark.usefixtures("own_lock")
LITTLE, MUCH = GB // 1000, 64 * GB
BUSY = a_gpu(utilization_percent=98.0)
JUST_NOW = math.inf  # however long what comes after it takes
OTHER = a_gpu(id="GPU-2", name="NVIDIA T400", torch_device="cuda:1")


class Machine:
    """What a survey finds free, and a card that others compute on where it has one."""

    def __init__(self) -> None:
        self.usable_bytes = LITTLE  # another measurement holds the rest
        self.cards: tuple[Accelerator, ...] = ()

    def as_found(self, survey: Survey) -> Survey:
        memory = replace(survey.memory, usable_bytes=self.usable_bytes)
        return replace(survey, memory=memory, accelerators=self.cards)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    from probes import survey as surveys

    take, found = surveys.take_survey, Machine()
    monkeypatch.setattr("probes.survey.take_survey", lambda *args, **named: found.as_found(take(*args, **named)))
    return found


async def after_another(crosspoint: Crosspoint, machine: Machine, said: list[str], asked: asyncio.Task[Any]) -> Any:
    """What comes of it, once a measurement before it has ended and its memory is free. said: when it waits."""
    while not said:  # noqa: ASYNC110 - a list has no event
        await asyncio.sleep(0.001)
    machine.usable_bytes = MUCH
    crosspoint.lab.release(crosspoint.lab._slot.tickets[0])
    return await asked


def test_a_question_that_waited_for_the_machine_has_the_memory_that_is_free_by_then(
    tmp_path: Path, machine: Machine
) -> None:
    async def use(crosspoint: Crosspoint) -> Recommendation:
        crosspoint.lab.reserve(600.0)
        said: list[str] = []
        asked = asyncio.create_task(ask(crosspoint, lambda _, message: said.append(message)))
        answer: Recommendation = await after_another(crosspoint, machine, said, asked)
        return answer

    heard = tmp_path / "jobs"
    answer = with_crosspoint(tmp_path, use, obedient(heard))
    assert {job["memory_limit_bytes"] for job in jobs(heard)} == {MUCH}
    assert answer.recommended is not None
    assert {option.memory.available_bytes for option in answer.options} == {MUCH}


def test_a_question_that_waited_for_a_calibration_is_answered_by_it(tmp_path: Path, machine: Machine) -> None:
    async def use(crosspoint: Crosspoint) -> Recommendation:
        crosspoint.lab.reserve(600.0)
        said: list[str] = []
        asked = asyncio.create_task(ask(crosspoint, lambda _, message: said.append(message)))
        while not said:  # noqa: ASYNC110 - a list has no event
            await asyncio.sleep(0.001)
        survey = await crosspoint.survey()
        await crosspoint.store.keep_profile(replace(a_profile(fingerprint=survey.fingerprint), paces={1: 2e-4}))
        answer: Recommendation = await after_another(crosspoint, machine, said, asked)
        return answer

    heard = tmp_path / "jobs"
    answer = with_crosspoint(tmp_path, use, obedient(heard))
    assert {reason.code for reason in answer.reasons}.isdisjoint({"no-calibration", "stale-profile"})
    assert all(job["paces"] == {"1": 2e-4} for job in jobs(heard) if job["kind"] == "measure")


def test_a_measurement_that_waited_for_the_machine_has_the_memory_that_is_free_by_then(
    tmp_path: Path, machine: Machine
) -> None:
    async def use(crosspoint: Crosspoint) -> None:
        crosspoint.lab.reserve(600.0)
        request, said = Request(IRIS, effort="quick"), list[str]()
        work = crosspoint.measure(
            request, seconds=1.0, plans=[ONE], on_progress=lambda _, message: said.append(message)
        )
        await after_another(crosspoint, machine, said, asyncio.create_task(work))

    heard = tmp_path / "jobs"
    with_crosspoint(tmp_path, use, obedient(heard))
    assert [job["memory_limit_bytes"] for job in jobs(heard)] == [MUCH]


@pytest.mark.parametrize(
    ("percent", "lately", "by_itself", "devices"),
    [
        (98.0, False, True, ["cpu", "cuda:1"]),
        (3.0, False, True, ["cpu", "cuda:0", "cuda:1"]),
        (98.0, True, True, ["cpu", "cuda:0", "cuda:1"]),
        (98.0, False, False, ["cpu", "cuda:0", "cuda:1"]),
    ],
)
def test_a_calibration_that_nobody_asked_for_leaves_out_a_card_on_which_others_compute(
    tmp_path: Path, machine: Machine, percent: float, *, lately: bool, by_itself: bool, devices: list[str]
) -> None:
    """Not one that was busy with a measurement of ours."""
    machine.cards = (replace(BUSY, utilization_percent=percent), OTHER)

    async def use(crosspoint: Crosspoint) -> None:
        if lately:
            crosspoint.lab._measured_at = JUST_NOW
        await crosspoint.calibrate("quick", by_itself=by_itself)

    with_crosspoint(tmp_path, use, calibrating(tmp_path))
    assert [job["devices"] for job in jobs(tmp_path / "jobs")] == [devices]


def test_a_calibration_that_waited_is_of_the_machine_as_it_is_by_then(tmp_path: Path, machine: Machine) -> None:
    machine.cards = (OTHER,)

    async def use(crosspoint: Crosspoint) -> tuple[str, str, Profile]:
        before = (await crosspoint.survey()).fingerprint
        crosspoint.lab.reserve(600.0)
        said = list[str]()
        work = crosspoint.calibrate("quick", on_progress=lambda _, message: said.append(message), by_itself=True)
        asked = asyncio.create_task(work)
        while not said:  # noqa: ASYNC110 - a list has no event
            await asyncio.sleep(0.001)
        machine.cards = (BUSY, OTHER)
        profile: Profile = await after_another(crosspoint, machine, said, asked)
        return before, (await crosspoint.survey()).fingerprint, profile

    before, after, profile = with_crosspoint(tmp_path, use, calibrating(tmp_path))
    (job,) = jobs(tmp_path / "jobs")
    assert profile.fingerprint == job["fingerprint"] == after != before
    assert job["devices"] == ["cpu", "cuda:0", "cuda:1"]  # who computed there before is not known


async def at_its_turn(crosspoint: Crosspoint, survey: Survey, heard: list[str]) -> Survey:
    ticket = crosspoint.lab.reserve(1.0)
    ticket.on_wait, ticket.on_start = lambda: heard.append("waits"), lambda: heard.append("starts")
    at_turn = SurveyAtTurn(crosspoint, ticket, survey)
    async with crosspoint.lab.session(ticket):
        return await at_turn.survey()


def test_who_did_not_wait_has_the_survey_from_before(tmp_path: Path, machine: Machine) -> None:
    machine.cards = (BUSY,)

    async def use(crosspoint: Crosspoint) -> None:
        survey = await crosspoint.survey()
        assert await at_its_turn(crosspoint, survey, heard) is survey

    heard: list[str] = []
    with_crosspoint(tmp_path, use, ECHO)
    assert heard == ["starts"]


@pytest.mark.parametrize("waits", [True, False], ids=["it waited", "another has just ended"])
def test_after_another_measurement_nobody_knows_who_else_computed_on_a_card(
    tmp_path: Path, machine: Machine, *, waits: bool
) -> None:
    machine.cards = (BUSY,)

    async def use(crosspoint: Crosspoint) -> Survey:
        survey = await crosspoint.survey()
        if not waits:
            crosspoint.lab._measured_at = JUST_NOW
            return await at_its_turn(crosspoint, survey, heard)
        crosspoint.lab.reserve(600.0)
        found: Survey = await after_another(
            crosspoint, machine, heard, asyncio.create_task(at_its_turn(crosspoint, survey, heard))
        )
        return found

    heard: list[str] = []
    (card,) = with_crosspoint(tmp_path, use, ECHO).accelerators
    assert card.utilization_percent is None
    assert heard == (["waits", "starts"] if waits else ["starts"])


def test_a_survey_that_fails_at_its_turn_leaves_the_one_from_before(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use(crosspoint: Crosspoint) -> None:
        survey = await crosspoint.survey()
        crosspoint.lab.reserve(600.0)
        monkeypatch.setattr("probes.survey.take_survey", fail)
        heard: list[str] = []
        asked = asyncio.create_task(at_its_turn(crosspoint, survey, heard))
        found = await after_another(crosspoint, machine, heard, asked)
        assert found.memory == survey.memory

    def fail(*_: object, **__: object) -> Survey:
        raise OSError("no more")

    with_crosspoint(tmp_path, use, ECHO)
