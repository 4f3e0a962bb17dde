"""Profiles that travel, and what a calibration added to this machine's."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from app.advisor.request import Request
from app.advisor.time_model.pooled import LOOKED_AT, pool
from app.errors import ProfileRefused, StoreError, UnknownProfile
from app.profiles import find_profile, forget_profile, import_profile, list_profiles, newest_devices
from app.service import Crosspoint
from app.settings import Settings
from app.store.profiles import KEPT_PROFILES_EACH
from app.store.schema import MIGRATIONS
from app.store.store import FILE_NAME
from app.upkeep import Upkeep
from probes.profile import Profile
from tests.app.advisor.build import ONE, a_workload
from tests.app.advisor.machine import GPU, a_profile
from tests.app.calibrating import calibrating
from tests.app.imported import imported_meanwhile
from tests.app.opened import with_crosspoint
from tests.app.test_store_trouble import no_room

CALM = a_profile((ONE, GPU))


def told_of(folder: Path, *calibrations: Profile) -> dict[str, bool]:
    """calibrations: in the order in which they ran."""

    async def ask() -> dict[str, bool]:
        async with Crosspoint(Settings(data_dir=folder)) as crosspoint:
            for place, each in enumerate(calibrations):
                profile = pool(calibrations[place::-1])
                await crosspoint.store.keep_profile(profile, each)
            return await newest_devices(crosspoint, CALM)

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("noise", "told"),
    [
        ({}, {"cpu": True, "cuda:0": True}),
        ({"contention": 0.5}, {"cpu": False, "cuda:0": False}),
        ({"slow_fraction": 0.5}, {"cpu": False, "cuda:0": True}),
    ],
)
def test_each_device_s_times_count_by_themselves(
    tmp_path: Path, noise: dict[str, float | None], told: dict[str, bool]
) -> None:
    assert told_of(tmp_path, CALM, replace(CALM, noise=noise)) == told


def test_what_no_calmer_one_measured_counts(tmp_path: Path) -> None:
    assert told_of(tmp_path, a_profile((ONE,)), replace(CALM, noise={"contention": 0.5})) == {
        "cpu": False,
        "cuda:0": True,
    }


def test_of_a_machine_that_was_never_calibrated_there_is_nothing_to_tell(tmp_path: Path) -> None:
    assert told_of(tmp_path) == {}


@pytest.mark.usefixtures("own_lock")
def test_what_somebody_brought_meanwhile_answers_where_nobody_asked_for_the_calibration(tmp_path: Path) -> None:
    async def use(crosspoint: Crosspoint) -> None:
        survey = await crosspoint.survey()
        brought = replace(a_profile(fingerprint=survey.fingerprint), name="brought", effort="full")
        imported_meanwhile(crosspoint, brought)
        upkeep = Upkeep(crosspoint)
        await upkeep._calibrate_if_due(survey)
        assert upkeep.calibration["state"] == "done"
        assert await crosspoint.profile(survey) == brought
        assert [head["name"] for head in await crosspoint.store.profile_heads()] == ["brought"]
        asked_for = await crosspoint.calibrate("quick")
        assert await crosspoint.profile(survey) == asked_for != brought

    with_crosspoint(tmp_path, use, calibrating(tmp_path))


@pytest.mark.usefixtures("own_lock")
def test_taking_in_what_is_stored_leaves_the_calibrations_behind_it(tmp_path: Path) -> None:
    async def use(crosspoint: Crosspoint) -> None:
        for _ in range(2):
            ours = await crosspoint.calibrate("quick", name="ours")
        key = (ours.name, ours.fingerprint)
        exported = json.dumps(ours.to_json()).encode()
        assert await import_profile(crosspoint, exported) == ours
        assert len(await crosspoint.store.calibration_times(*key)) == ours.calibrations == 2
        assert (await crosspoint.calibrate("quick", name="ours")).calibrations == 3
        renamed = await import_profile(crosspoint, json.dumps(a_later(ours).to_json()).encode(), "renamed")
        assert await crosspoint.profile(await crosspoint.survey()) == renamed

    with_crosspoint(tmp_path, use, calibrating(tmp_path))


@pytest.mark.usefixtures("own_lock")
def test_nor_does_it_where_the_last_write_met_a_full_disk(tmp_path: Path) -> None:
    """That passes, and where it does the row would take the calibrations' place."""

    async def use(crosspoint: Crosspoint) -> None:
        ours = await crosspoint.calibrate("quick", name="ours")
        assert crosspoint.store._database is not None
        crosspoint.store._database.failed = "the store cannot be written"
        assert await import_profile(crosspoint, json.dumps(ours.to_json()).encode()) == ours
        assert len(await crosspoint.store.calibration_times(ours.name, ours.fingerprint)) == 1

    with_crosspoint(tmp_path, use, calibrating(tmp_path))


@pytest.mark.usefixtures("own_lock")
def test_this_machine_s_profile_does_not_come_back_under_another_name(tmp_path: Path) -> None:
    """It answered in its own place, and the next calibration was the first again."""

    async def use(crosspoint: Crosspoint) -> None:
        ours = await crosspoint.calibrate("quick", name="ours")
        for content, name in ((content_of(ours), "renamed"), (content_of(replace(ours, name="renamed")), None)):
            with pytest.raises(ProfileRefused, match='already, named "ours"') as caught:
                await import_profile(crosspoint, content, name)
            assert caught.value.code == "profile-exists"
        assert await listed(crosspoint) == {"ours": True}
        theirs = made_on(21, "rig", "another")
        for name in ("rig", "the same"):
            assert (await import_profile(crosspoint, content_of(theirs), name)).name == name

    with_crosspoint(tmp_path, use, calibrating(tmp_path))


def a_later(profile: Profile) -> Profile:
    return replace(profile, created_at="2026-11-28T09:00:00Z")


def test_what_could_not_be_read_again_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = json.dumps(CALM.to_json()).encode()
    monkeypatch.setattr(Profile, "to_json", lambda profile: {"name": profile.name})

    async def use(crosspoint: Crosspoint) -> None:
        with pytest.raises(ProfileRefused, match="could not be read again"):
            await import_profile(crosspoint, content)
        assert not await crosspoint.store.has_profile(CALM.name)

    with_crosspoint(tmp_path, use)


def test_what_cannot_be_saved_is_not_taken_for_stored_when_it_is_sent_again(tmp_path: Path) -> None:
    (tmp_path / "file").touch()  # in the folder's place

    async def use(crosspoint: Crosspoint) -> None:
        for _ in range(2):
            with pytest.raises(StoreError, match="not saved"):
                await import_profile(crosspoint, json.dumps(CALM.to_json()).encode())

    with_crosspoint(tmp_path / "file", use)


def test_where_the_store_cannot_be_read_nobody_says_that_a_profile_is_unknown(tmp_path: Path) -> None:
    async def keep(crosspoint: Crosspoint) -> None:
        await crosspoint.store.keep_profile(CALM)
        assert crosspoint.store._database is not None
        crosspoint.store._database.trouble = "the store cannot be written"  # which can be read all the same
        with pytest.raises(UnknownProfile, match=CALM.name):
            await find_profile(crosspoint, "rig")

    async def ask(crosspoint: Crosspoint) -> None:
        for question in (
            list_profiles(crosspoint),
            find_profile(crosspoint, CALM.name),
            forget_profile(crosspoint, CALM.name),
            crosspoint.recommend(Request(a_workload(), profile=CALM.name)),
        ):
            with pytest.raises(StoreError, match=r"cannot be looked up: .*newer crosspoint"):
                await question
        answer = await crosspoint.recommend(Request(a_workload()))
        assert "cannot be looked up" in answer.verdict
        assert not any("not been calibrated" in text for text in (answer.verdict, *(r.text for r in answer.reasons)))
        survey = await crosspoint.survey()
        mine = made_on(21, "host", survey.fingerprint)
        crosspoint.profiles.note(mine, mine, saved=False)
        assert [head["name"] for head in await list_profiles(crosspoint)] == ["host"], "of this process, as it is known"
        assert "cannot be looked up" not in (await crosspoint.recommend(Request(a_workload()))).verdict

    with_crosspoint(tmp_path, keep)
    with sqlite3.connect(tmp_path / FILE_NAME) as connection:
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    connection.close()
    with_crosspoint(tmp_path, ask)


def made_on(day: int, name: str, fingerprint: str) -> Profile:
    """On this day of a month."""
    return replace(a_profile(fingerprint=fingerprint), name=name, created_at=f"2026-11-{day}T09:00:00Z")


def content_of(profile: Profile) -> bytes:
    return json.dumps(profile.to_json()).encode()


def test_of_two_machines_that_send_a_profile_of_one_name_at_once_one_is_refused(tmp_path: Path) -> None:
    sent = [content_of(made_on(21, "localhost", machine)) for machine in ("one", "another")]

    async def use(crosspoint: Crosspoint) -> None:
        taking = (import_profile(crosspoint, content) for content in sent)
        outcomes = await asyncio.gather(*taking, return_exceptions=True)
        (refused,) = (outcome for outcome in outcomes if isinstance(outcome, ProfileRefused))
        assert refused.code == "profile-exists"
        assert await find_profile(crosspoint, "localhost") in outcomes

    with_crosspoint(tmp_path, use)


@pytest.mark.parametrize("days", [(21, 22), (22, 21)])
def test_of_two_profiles_of_one_machine_that_come_at_once_the_newer_answers(
    tmp_path: Path, days: tuple[int, int]
) -> None:
    sent = [content_of(made_on(day, "rig", "another")) for day in days]

    async def use(crosspoint: Crosspoint) -> None:
        await asyncio.gather(*(import_profile(crosspoint, content) for content in sent), return_exceptions=True)
        assert await find_profile(crosspoint, "rig") == made_on(22, "rig", "another")

    with_crosspoint(tmp_path, use)


def test_a_removal_that_fails_forgets_nothing_that_is_not_saved_yet(tmp_path: Path) -> None:
    async def use(crosspoint: Crosspoint) -> None:
        survey = await crosspoint.survey()
        stored, unsaved = (made_on(day, "rig", survey.fingerprint) for day in (21, 22))
        await crosspoint.store.keep_profile(stored, stored)
        crosspoint.profiles.note(unsaved, unsaved, saved=False)
        with no_room(), pytest.raises(StoreError, match="not removed"):
            await forget_profile(crosspoint, "rig")
        assert await find_profile(crosspoint, "rig") == unsaved
        await crosspoint.profiles.save_unsaved()
        assert await crosspoint.store.calibrations("rig", survey.fingerprint, 9) == [unsaved, stored]
        await forget_profile(crosspoint, "rig")
        assert await list_profiles(crosspoint) == []

    with_crosspoint(tmp_path, use)


async def listed(crosspoint: Crosspoint) -> dict[str, bool]:
    """Which names are listed, and whether each answers for this machine. Each row is of what its name gives."""
    rows = await list_profiles(crosspoint)
    for row in rows:
        found = await find_profile(crosspoint, row["name"])
        assert (row["created_at"], row["fingerprint"]) == (found.created_at, found.fingerprint)
    return {row["name"]: row["this_machine"] for row in rows}


def test_of_two_profiles_of_this_machine_one_is_said_to_answer_for_it(tmp_path: Path) -> None:
    async def use(crosspoint: Crosspoint) -> None:
        here = (await crosspoint.survey()).fingerprint
        for profile in (made_on(21, "host", here), made_on(22, "quiet", here)):
            await crosspoint.store.keep_profile(profile)
        assert await listed(crosspoint) == {"quiet": True, "host": False}

    with_crosspoint(tmp_path, use)


def test_a_name_gives_this_machines_profile_as_it_is_now_also_where_that_does_not_answer(tmp_path: Path) -> None:
    """Another driver came and went, each time with a calibration, and then one under another name."""

    async def use(crosspoint: Crosspoint) -> None:
        here = (await crosspoint.survey()).fingerprint
        ours = made_on(21, "host", here)
        for profile in (ours, made_on(22, "host", "the other state"), made_on(23, "quiet", here)):
            await crosspoint.store.keep_profile(profile)
        assert await find_profile(crosspoint, "host") == ours
        assert await listed(crosspoint) == {"quiet": True, "host": False}

    with_crosspoint(tmp_path, use)


def test_whatever_is_taken_in_is_given_by_its_name(tmp_path: Path) -> None:
    """This machine is in the state of the first again, which is not saved yet, or whose name no longer answers."""

    async def use(crosspoint: Crosspoint) -> None:
        here = (await crosspoint.survey()).fingerprint
        other = made_on(22, "host", "the other state")
        await crosspoint.store.keep_profile(other)
        ours = made_on(21, "host", here)
        crosspoint.profiles.note(ours, ours, saved=False)
        with pytest.raises(ProfileRefused, match="another name"):
            await import_profile(crosspoint, content_of(other))
        await crosspoint.profiles.save_unsaved()
        await crosspoint.store.keep_profile(made_on(23, "quiet", here))
        with pytest.raises(ProfileRefused, match="another name"):
            await import_profile(crosspoint, content_of(other))
        taken = await import_profile(crosspoint, content_of(other), "other")
        assert await find_profile(crosspoint, "other") == taken

    with_crosspoint(tmp_path, use)


def test_profiles_that_could_not_be_saved_are_listed_and_given_by_name(tmp_path: Path) -> None:
    async def use(crosspoint: Crosspoint) -> None:
        here = (await crosspoint.survey()).fingerprint
        await crosspoint.store.keep_profile(made_on(20, "rig", "another"))
        for profile in (made_on(21, "host", here), made_on(22, "quiet", here)):
            crosspoint.profiles.note(profile, profile, saved=False)
        assert await listed(crosspoint) == {"quiet": True, "host": False, "rig": False}
        with pytest.raises(UnknownProfile) as caught:
            await find_profile(crosspoint, "nobody's")
        assert caught.value.suggestions == ("quiet", "host", "rig")

    with_crosspoint(tmp_path, use)


def test_what_a_later_version_stored_is_not_listed_and_hides_nothing_of_its_name(tmp_path: Path) -> None:
    async def use(crosspoint: Crosspoint) -> None:
        here = (await crosspoint.survey()).fingerprint
        of_later = (replace(made_on(22, name, here), schema_version="99") for name in ("host", "later"))
        for profile in (made_on(21, "host", here), *of_later):
            await crosspoint.store.keep_profile(profile)
        assert await listed(crosspoint) == {"host": True}
        with pytest.raises(UnknownProfile) as caught:
            await find_profile(crosspoint, "later")
        assert caught.value.suggestions == ("host",)
        await forget_profile(crosspoint, "later")

    with_crosspoint(tmp_path, use)


def test_as_many_calibrations_are_looked_at_as_are_kept() -> None:
    assert LOOKED_AT == KEPT_PROFILES_EACH
