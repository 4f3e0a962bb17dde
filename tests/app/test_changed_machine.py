"""A machine that is calibrated again, that changed, or that is called like another one: whose profile answers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from app.advisor.request import Request
from app.profiles import import_profile, list_profiles
from app.service import Crosspoint
from tests.app.advisor.machine import a_profile
from tests.app.calibrating import calibrating
from tests.app.opened import with_crosspoint
from tests.app.test_service import SUMMARY

pytestmark = pytest.mark.usefixtures("own_lock")


def test_a_profile_holds_the_calibrations_before_it_until_one_from_elsewhere_takes_its_place(tmp_path: Path) -> None:
    truth = a_profile().points[0].seconds.median

    async def use(crosspoint: Crosspoint) -> None:
        first = await crosspoint.calibrate("quick", name="named")
        assert (first.calibrations, first.points[0].seconds.median) == (1, truth)
        for count, mean in ((2, 1.02**0.5), (3, 1.02)):
            pooled = await crosspoint.calibrate("quick", name="named")
            assert pooled.calibrations == count
            assert pooled.points[0].seconds.median == pytest.approx(mean * truth, rel=1e-3)
            assert await crosspoint.profile(await crosspoint.survey()) == pooled
        (head,) = await crosspoint.store.profile_heads()
        assert head["calibrations"] == 3
        await crosspoint.store.keep_profile(replace(pooled, calibrations=1))
        assert (await crosspoint.calibrate("quick", name="named")).calibrations == 1
        assert (await crosspoint.calibrate("quick", name="other")).calibrations == 1

    with_crosspoint(tmp_path, use, calibrating(tmp_path))


def test_a_calibration_leaves_another_machines_profile_that_is_called_like_this_one(tmp_path: Path) -> None:
    async def use(crosspoint: Crosspoint) -> None:
        host = (await crosspoint.calibrate("quick")).name
        await crosspoint.store.forget_profiles(host)
        theirs = replace(a_profile(fingerprint="another"), name=host)
        await crosspoint.store.keep_profile(theirs)
        for count in (1, 2):
            ours = await crosspoint.calibrate("quick")
            assert (ours.name, ours.calibrations) == (f"{host}-2", count)
            assert await crosspoint.profile(await crosspoint.survey()) == ours
        assert await crosspoint.profile(await crosspoint.survey(), host) == theirs

    with_crosspoint(tmp_path, use, calibrating(tmp_path))


def test_a_machine_that_changed_keeps_its_profiles_name(tmp_path: Path) -> None:
    async def use(crosspoint: Crosspoint) -> None:
        host = (await crosspoint.calibrate("quick")).name
        await crosspoint.store.forget_profiles(host)
        survey = await crosspoint.survey()
        await crosspoint.store.keep_survey(replace(survey, fingerprint="before"))
        await crosspoint.store.keep_profile(replace(a_profile(fingerprint="before"), name=host))
        assert (await crosspoint.calibrate("quick")).name == host

    with_crosspoint(tmp_path, use, calibrating(tmp_path))


def test_of_a_name_that_several_states_of_this_machine_have_the_present_one_s_profile_answers(tmp_path: Path) -> None:
    """Two virtual environments with another torch each, and one folder of data."""

    async def use(crosspoint: Crosspoint) -> None:
        ours = await crosspoint.calibrate("quick")
        survey = await crosspoint.survey()
        other = replace(a_profile(fingerprint="the other state"), name=ours.name, created_at="2099-01-01T00:00:00Z")
        await crosspoint.store.keep_profile(other)
        assert await crosspoint.profile(survey, ours.name) == await crosspoint.profile(survey) == ours
        (row,) = await list_profiles(crosspoint)
        assert (row["fingerprint"], row["this_machine"]) == (survey.fingerprint, True)
        exported = json.dumps(ours.to_json()).encode()
        assert await import_profile(crosspoint, exported) == ours

    with_crosspoint(tmp_path, use, calibrating(tmp_path))


def test_a_machine_that_changed_since_its_calibration_is_told_so(tmp_path: Path) -> None:
    async def use(crosspoint: Crosspoint) -> None:
        survey = await crosspoint.survey()
        before = replace(survey, fingerprint="before")
        await crosspoint.store.keep_survey(before)
        await crosspoint.store.keep_profile(replace(a_profile(fingerprint="before"), software={"torch": "1.0"}))
        answer = await crosspoint.recommend(Request(SUMMARY))
        (reason,) = [reason for reason in answer.reasons if reason.code == "stale-profile"]
        assert "torch 1.0 then" in reason.text
        assert "crosspoint calibrate" in reason.text
        assert {option.basis for option in answer.options} == {None}
        await crosspoint.store.keep_profile(a_profile(fingerprint=survey.fingerprint))
        answer = await crosspoint.recommend(Request(SUMMARY))
        assert "stale-profile" not in {reason.code for reason in answer.reasons}

    with_crosspoint(tmp_path, use)


def test_a_profile_of_a_stranger_is_never_taken_for_this_machines_past(tmp_path: Path) -> None:
    async def use(crosspoint: Crosspoint) -> None:
        await crosspoint.store.keep_profile(a_profile(fingerprint="stranger"))
        answer = await crosspoint.recommend(Request(SUMMARY))
        assert "stale-profile" not in {reason.code for reason in answer.reasons}

    with_crosspoint(tmp_path, use)
