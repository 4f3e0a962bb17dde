"""A profile is called so that every stored one is found by its name."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.errors import ProfileRefused
from app.profile_names import free_name, is_another_machines
from app.profiles import check_new_name, import_profile
from app.service import Crosspoint
from probes import bounds
from probes.profile import Profile
from tests.app.advisor.machine import a_profile
from tests.app.calibrating import calibrating
from tests.app.imported import imported_meanwhile
from tests.app.opened import with_crosspoint

pytestmark = pytest.mark.usefixtures("own_lock")


def a_strangers(name: str) -> Profile:
    return replace(a_profile(fingerprint="another"), name=name)


@pytest.mark.parametrize("asked", [None, "lab"])
def test_a_name_that_another_machines_profile_got_while_this_one_was_calibrated_is_not_taken(
    tmp_path: Path, asked: str | None
) -> None:
    async def use(crosspoint: Crosspoint) -> None:
        survey = await crosspoint.survey()
        name = asked or await free_name(crosspoint.store, survey)
        theirs = a_strangers(name)
        imported_meanwhile(crosspoint, theirs)
        ours = await crosspoint.calibrate("quick", name=asked)
        assert ours.name == f"{name}-2"
        assert await crosspoint.profile(survey) == await crosspoint.profile(survey, ours.name) == ours
        assert await crosspoint.profile(survey, name) == theirs

    with_crosspoint(tmp_path, use, calibrating(tmp_path))


def test_nor_one_that_comes_while_this_machines_is_kept(tmp_path: Path) -> None:
    async def use(crosspoint: Crosspoint) -> None:
        name = await free_name(crosspoint.store, await crosspoint.survey())
        taking = list[asyncio.Task[Profile]]()
        run = crosspoint.lab.run_at_turn

        async def run_and_begin_to_import(*words: Any, **more: Any) -> dict[str, Any]:
            found = await run(*words, **more)
            taking.append(asyncio.create_task(import_profile(crosspoint, json.dumps(theirs).encode())))
            return found

        theirs = a_strangers(name).to_json()
        crosspoint.lab.run_at_turn = run_and_begin_to_import  # type: ignore[method-assign]
        ours = await crosspoint.calibrate("quick")
        (taken,) = await asyncio.gather(*taking, return_exceptions=True)
        assert isinstance(taken, ProfileRefused) == (ours.name == name)

    with_crosspoint(tmp_path, use, calibrating(tmp_path))


def test_whatever_state_this_machine_was_in_its_profiles_are_its_own(tmp_path: Path) -> None:
    """Not only the state of its latest profile."""

    async def use(crosspoint: Crosspoint) -> None:
        survey = await crosspoint.survey()
        for state, name in (("a", "rig"), ("b", "lab")):
            await crosspoint.store.keep_survey(replace(survey, fingerprint=state))
            await crosspoint.store.keep_profile(replace(a_profile(fingerprint=state), name=name))
        await crosspoint.store.keep_profile(a_strangers("theirs"))
        for name in ("rig", "lab"):
            await check_new_name(crosspoint, name)
            assert await free_name(crosspoint.store, survey, name) == name
        assert await is_another_machines(crosspoint.store, survey, "theirs")

    with_crosspoint(tmp_path, use)


def test_a_name_with_a_number_is_no_longer_than_a_name_may_be(tmp_path: Path) -> None:
    longest = "x" * bounds.MAX_NAME_CHARACTERS

    async def use(crosspoint: Crosspoint) -> None:
        await crosspoint.store.keep_profile(a_strangers(longest))
        assert await free_name(crosspoint.store, await crosspoint.survey(), longest) == f"{longest[:-2]}-2"

    with_crosspoint(tmp_path, use)
