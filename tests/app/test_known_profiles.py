"""A profile that could not be saved is there all the same, and is saved once it can be."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from app.asking_torch import AskingTorch
from app.errors import ProfileRefused, StoreError, UnknownProfile
from app.known_profiles import KnownProfiles
from app.profiles import forget_profile, import_profile
from app.service import Crosspoint
from app.store import Store
from app.store.store import FILE_NAME
from app.upkeep import Upkeep
from probes.profile import METHOD, Profile, moment_of
from tests.app.advisor.build import a_survey
from tests.app.advisor.machine import a_profile
from tests.app.calibrating import calibrating
from tests.app.opened import with_crosspoint
from tests.app.serving import PATIENCE_SECONDS
from tests.app.test_store import in_store

pytestmark = pytest.mark.usefixtures("own_lock")


def made_on(day: int, fingerprint: str, name: str) -> Profile:
    """On this day of a month."""
    return replace(a_profile(fingerprint=fingerprint), name=name, created_at=f"2026-11-{day}T09:00:00Z")


def test_it_hides_none_that_came_later(tmp_path: Path) -> None:
    async def use(crosspoint: Crosspoint) -> None:
        survey = await crosspoint.survey()
        unsaved, later = (made_on(day, survey.fingerprint, name) for day, name in ((21, "unsaved"), (22, "later")))
        crosspoint.profiles.note(later, later, saved=False)
        await crosspoint.store.keep_profile(unsaved)
        assert await crosspoint.profile(survey) == later
        crosspoint.profiles.note(unsaved, unsaved, saved=False)
        await crosspoint.store.keep_profile(later)
        assert await crosspoint.profile(survey) == later
        await crosspoint.profiles.save_unsaved()
        assert await crosspoint.profile(survey) == later
        assert not crosspoint.profiles.forget_unsaved(lambda _: True)

    with_crosspoint(tmp_path, use)


def test_it_is_forgotten_when_one_is_taken_in_or_it_is_removed(tmp_path: Path) -> None:
    async def use(crosspoint: Crosspoint) -> None:
        survey = await crosspoint.survey()
        days = ((21, "older"), (22, "unsaved"), (23, "taken"))
        older, unsaved, taken = (made_on(day, survey.fingerprint, name) for day, name in days)
        crosspoint.profiles.note(unsaved, unsaved, saved=False)
        with pytest.raises(ProfileRefused, match="newer profile"):
            await import_profile(crosspoint, json.dumps(older.to_json()).encode())
        await import_profile(crosspoint, json.dumps(taken.to_json()).encode())
        assert await crosspoint.profile(survey) == taken
        unsaved = replace(unsaved, created_at="2026-11-24T09:00:00Z")
        crosspoint.profiles.note(unsaved, unsaved, saved=False)
        await forget_profile(crosspoint, "unsaved")
        assert await crosspoint.profile(survey) == taken
        with pytest.raises(UnknownProfile):
            await forget_profile(crosspoint, "unsaved")

    with_crosspoint(tmp_path, use)


def test_several_that_could_not_be_saved_count_together_and_are_saved_in_turn(tmp_path: Path) -> None:
    async def use(crosspoint: Crosspoint) -> None:
        fingerprint = (await crosspoint.survey()).fingerprint
        first, second, third = (made_on(day, fingerprint, "ours") for day in (21, 22, 23))
        await crosspoint.store.keep_profile(first, first)
        for each in (second, third):
            crosspoint.profiles.note(each, each, saved=False)
        assert await crosspoint.profiles.calibrations("ours", fingerprint) == [third, second, first]
        assert await crosspoint.profiles.calibrations("theirs", fingerprint) == []
        times = await crosspoint.profiles.calibration_times("ours", fingerprint)
        assert times[:2] == [moment_of(each.created_at).timestamp() for each in (third, second)]
        assert await crosspoint.profiles.calibration_times("ours", fingerprint, METHOD + 1) == []
        await crosspoint.profiles.save_unsaved()
        assert await crosspoint.store.calibrations("ours", fingerprint, 9) == [third, second, first]
        assert not crosspoint.profiles.forget_unsaved(lambda _: True)

    with_crosspoint(tmp_path, use)


def test_where_there_is_only_memory_each_counts_once(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.touch()  # a file in the folder's place

    async def use(crosspoint: Crosspoint) -> None:
        first = await crosspoint.calibrate("quick", name="ours")
        for count in (2, 3):
            await crosspoint.profiles.save_unsaved()
            assert (await crosspoint.calibrate("quick", name="ours")).calibrations == count
        assert len(await crosspoint.profiles.calibrations("ours", first.fingerprint)) == 3

    with_crosspoint(folder, use, calibrating(tmp_path))


def test_one_that_is_exported_and_sent_back_keeps_its_calibrations(tmp_path: Path) -> None:
    async def use(crosspoint: Crosspoint) -> None:
        survey = await crosspoint.survey()
        first, pooled = (made_on(day, survey.fingerprint, "ours") for day in (21, 22))
        await crosspoint.store.keep_profile(first, first)
        crosspoint.profiles.note(pooled, pooled, saved=False)
        assert await import_profile(crosspoint, json.dumps(pooled.to_json()).encode()) == pooled
        assert await crosspoint.store.calibrations("ours", survey.fingerprint, 9) == [pooled, first]

    with_crosspoint(tmp_path, use)


@pytest.mark.parametrize(
    "ask", [KnownProfiles.heads, lambda known: known.find(a_survey(), a_profile().name)], ids=["a list", "a name"]
)
def test_who_asks_for_profiles_is_answered_once_the_store_can_be_read(
    tmp_path: Path, ask: Callable[[KnownProfiles], Awaitable[object]]
) -> None:
    """Not only after the next look at it."""
    path, away = tmp_path / FILE_NAME, tmp_path / "away"

    async def keep(store: Store) -> None:
        await store.keep_profile(a_profile())
        path.rename(away)

    async def use(store: Store) -> None:
        known = KnownProfiles(store)
        await store.open()
        with pytest.raises(StoreError, match="cannot be looked up: a folder lies where"):
            await ask(known)
        path.rmdir()
        away.rename(path)
        assert await ask(known)

    in_store(tmp_path, keep)
    path.mkdir()
    in_store(tmp_path, use)


def test_what_could_not_be_saved_while_the_service_started_is_saved_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first calibration with its profile, and what the machine is."""
    monkeypatch.setattr("app.upkeep.TROUBLE_SECONDS", 0.02)
    folder = tmp_path / "data"
    folder.touch()  # a file in the folder's place

    async def use(crosspoint: Crosspoint) -> Profile:
        crosspoint.torch = AskingTorch(crosspoint.lab, crosspoint.surveyor)
        survey = await crosspoint.survey()
        upkeep = Upkeep(crosspoint)
        task = asyncio.create_task(upkeep.run())
        async with asyncio.timeout(PATIENCE_SECONDS):
            while upkeep.calibration["state"] != "done":  # noqa: ASYNC110 - it has no event for that
                await asyncio.sleep(0.01)
            assert crosspoint.store.trouble is not None
            ours = await crosspoint.profile(survey)
            assert ours is not None
            folder.unlink()
            while crosspoint.profiles._unsaved:  # noqa: ASYNC110 - nor has that
                await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])
        return ours

    async def use_again(crosspoint: Crosspoint) -> None:
        survey = await crosspoint.survey()
        assert await crosspoint.profile(survey) == saved
        assert await crosspoint.store.calibrations(saved.name, saved.fingerprint, 9) == [saved]
        assert await crosspoint.store.was_seen(survey.fingerprint)
        assert [row["fingerprint"] for row in await crosspoint.history()] == [survey.fingerprint]

    saved = with_crosspoint(folder, use, calibrating(tmp_path))
    with_crosspoint(folder, use_again)


def test_one_that_a_wrong_clock_dated_into_the_future_answers_in_nobody_s_place(tmp_path: Path) -> None:
    """It answered until the newer one could be saved."""

    async def use(crosspoint: Crosspoint) -> None:
        survey = await crosspoint.survey()
        ahead = replace(made_on(21, survey.fingerprint, "ahead"), created_at="2099-01-01T00:00:00Z")
        await crosspoint.store.keep_profile(ahead)
        assert await crosspoint.profile(survey) == ahead
        newer = made_on(22, survey.fingerprint, "newer")
        crosspoint.profiles.note(newer, newer, saved=False)
        assert await crosspoint.profile(survey) == newer

    with_crosspoint(tmp_path, use)
