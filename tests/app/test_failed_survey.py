"""Where the survey failed nothing is measured by it, and what is told says so."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.advisor.request import Request
from app.errors import LabError
from app.profiles import check_new_name, import_profile, list_profiles
from app.service import Crosspoint
from probes import survey as surveys
from probes.hardware import Survey
from tests.app.advisor.build import ONE, a_measurement
from tests.app.advisor.machine import a_profile
from tests.app.answering.obedient import IRIS, obedient
from tests.app.lab.programs import serving
from tests.app.opened import with_crosspoint
from tests.app.test_service import SUMMARY

pytestmark = pytest.mark.usefixtures("own_lock")
QUICK = Request(IRIS, effort="quick")


def failing(monkeypatch: pytest.MonkeyPatch, times: int | None = None) -> None:
    """The next surveys, so many of them; None: all."""
    take, failed = surveys.take_survey, list[bool]()

    def take_or_fail(*arguments: Any, **named: Any) -> Survey:
        if times is None or len(failed) < times:
            failed.append(True)
            raise OSError("not yet")
        return take(*arguments, **named)

    monkeypatch.setattr("probes.survey.take_survey", take_or_fail)


def measure(crosspoint: Crosspoint) -> Awaitable[Any]:
    return crosspoint.measure(QUICK, seconds=1.0, plans=[ONE])


def recommend(crosspoint: Crosspoint) -> Awaitable[Any]:
    return crosspoint.recommend(QUICK)


A_TRACE = a_profile().networks[0].trace.to_json()


@pytest.mark.parametrize("ask", [measure, recommend])
def test_a_survey_that_failed_once_is_taken_again_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: Callable[[Crosspoint], Awaitable[Any]]
) -> None:
    """The first one of a process imports its modules within its time."""
    failing(monkeypatch, times=1)

    async def use(crosspoint: Crosspoint) -> None:
        await ask(crosspoint)
        survey = await crosspoint.survey()
        assert survey.fingerprint
        assert await crosspoint.measurements(survey, IRIS), "kept as this machine's"

    traced = f"say(event='result', job=job['job'], result={A_TRACE!r}); continue"
    with_crosspoint(tmp_path, use, obedient(tmp_path / "jobs", of_a_trace=traced))


@pytest.mark.parametrize("ask", [measure, recommend])
def test_by_a_survey_that_fails_nothing_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: Callable[[Crosspoint], Awaitable[Any]]
) -> None:
    failing(monkeypatch)
    heard = tmp_path / "jobs"

    async def use(crosspoint: Crosspoint) -> None:
        with pytest.raises(LabError, match="survey failed"):
            await ask(crosspoint)
        assert not crosspoint.lab.waiting

    with_crosspoint(tmp_path, use, obedient(heard))
    assert not heard.exists()


def test_an_answer_without_a_survey_says_so_and_not_that_the_machine_was_never_calibrated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use(crosspoint: Crosspoint) -> None:
        survey = await crosspoint.survey()
        await crosspoint.store.keep_profile(replace(a_profile(fingerprint=survey.fingerprint), name="named"))
        failing(monkeypatch)
        await crosspoint.survey(fresh=True)
        codes = {reason.code for reason in (await crosspoint.recommend(Request(SUMMARY))).reasons}
        assert "no-survey" in codes
        assert "no-calibration" not in codes
        told = await crosspoint.recommend(Request(SUMMARY, profile="named"))
        assert "no-survey" not in {reason.code for reason in told.reasons}, "it rests on none"

    with_crosspoint(tmp_path, use, ("/no/such/program",))


def test_where_the_survey_failed_no_profile_is_said_to_be_of_before_this_machine_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use(crosspoint: Crosspoint) -> None:
        survey = await crosspoint.survey()
        await crosspoint.note_state(survey)
        await crosspoint.store.keep_profile(replace(a_profile(fingerprint=survey.fingerprint), name="named"))
        await crosspoint.store.keep_trace(IRIS, "unknown", a_profile().networks[0].trace)
        failing(monkeypatch)
        await crosspoint.survey(fresh=True)
        told = await crosspoint.recommend(replace(QUICK, profile="named"))
        (reason,) = (reason for reason in told.reasons if reason.code == "not-measured")
        assert "Nothing was measured: the survey failed" in reason.text

    with_crosspoint(tmp_path, use, serving("os._exit(9)"))


def test_what_was_measured_of_nobody_knows_which_machine_is_no_machine_s(tmp_path: Path) -> None:
    """As it was kept before."""

    async def use(crosspoint: Crosspoint) -> None:
        unknown = replace(await crosspoint.survey(), fingerprint="")
        await crosspoint.store.keep_measurements("", IRIS, [a_measurement(ONE, IRIS.batch_size, 0.001)])
        assert await crosspoint.measurements(unknown, IRIS) == []

    with_crosspoint(tmp_path, use)


def test_a_state_that_nobody_knows_is_not_kept(tmp_path: Path) -> None:
    async def use(crosspoint: Crosspoint) -> None:
        await crosspoint.note_state(replace(await crosspoint.survey(), fingerprint=""))
        assert not await crosspoint.store.was_seen("")

    with_crosspoint(tmp_path, use)


def test_a_survey_that_failed_once_marks_this_machine_s_profile_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use(crosspoint: Crosspoint) -> None:
        fingerprint = (await crosspoint.survey()).fingerprint
        await crosspoint.store.keep_profile(replace(a_profile(fingerprint=fingerprint), name="named"))
        failing(monkeypatch, times=1)
        await crosspoint.survey(fresh=True)
        assert [row["this_machine"] for row in await list_profiles(crosspoint)] == [True]

    with_crosspoint(tmp_path, use)


def test_by_a_survey_that_fails_no_profile_is_taken_in_nor_a_name_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that claims to be this machine's and describes another would be kept, and answer from the next survey on."""

    async def use(crosspoint: Crosspoint) -> None:
        fingerprint = (await crosspoint.survey()).fingerprint
        content = json.dumps(replace(a_profile(fingerprint=fingerprint), name="named").to_json()).encode()
        failing(monkeypatch)
        await crosspoint.survey(fresh=True)
        with pytest.raises(LabError, match="survey failed"):
            await import_profile(crosspoint, content)
        with pytest.raises(LabError, match="survey failed"):
            await check_new_name(crosspoint, "another")
        assert await list_profiles(crosspoint) == []

    with_crosspoint(tmp_path, use)
