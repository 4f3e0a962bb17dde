"""A service calibrates again by itself: as many times as a profile is made of, and where nobody computes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from app.advisor.time_model.pooled import LOOKED_AT, POOLED
from app.service import Crosspoint
from app.settings import Settings
from app.upkeep import AGAIN_SECONDS, Upkeep
from probes.hardware import Load
from probes.profile import METHOD, Profile
from tests.app.advisor.build import ONE, TWO, a_gpu
from tests.app.advisor.machine import GPU, a_profile

IDLE = Load(busy_fraction=0.0, steal_fraction=0.0)
LONG_AGO = 9 * max(AGAIN_SECONDS)


def again(
    folder: Path,
    ages: Sequence[float],
    load: Load = IDLE,
    *,
    imported: bool = False,
    counting: int | None = None,
    method: int = METHOD,
    unsaved: bool = False,
    effort: str = "full",
) -> list[tuple[Any, ...]]:
    """What is calibrated where calibrations of these ages are kept, oldest first: effort and name of each. counting:
    how many of them the profile is made of; None: all. method: how they measured. unsaved: whether
    another was made just now, which could not be saved."""
    asked: list[tuple[Any, ...]] = []

    async def use() -> None:
        async with Crosspoint(Settings(data_dir=folder)) as crosspoint:
            survey = replace(await crosspoint.survey(), load=load)
            count = len(ages) if counting is None else counting
            profile = replace(a_profile(fingerprint=survey.fingerprint), name="named", effort=effort)
            profile = replace(profile, calibrations=count, method=method)
            for _ in ages:
                await crosspoint.store.keep_profile(profile, profile)
            if unsaved:
                now = replace(profile, created_at=datetime.now(UTC).isoformat(timespec="seconds"))
                crosspoint.profiles.note(profile, now, saved=False)  # disturbed: the profile is as it was
            if imported:
                await crosspoint.store.keep_profile(profile)

            async def times(name: str, fingerprint: str, method: int | None = None) -> list[float]:
                kept = await type(crosspoint.store).calibration_times(crosspoint.store, name, fingerprint, method)
                return [time.time() - age for age in sorted(ages)][: len(kept)]

            async def calibrate(effort: str, *, name: str | None = None, **_: object) -> Profile:
                asked.append((effort, name))
                return profile

            crosspoint.store.calibration_times = times  # type: ignore[method-assign]
            crosspoint.calibrate = calibrate  # type: ignore[method-assign]
            upkeep = Upkeep(crosspoint)
            await upkeep._calibrate_if_due(survey)
            assert upkeep.calibration["state"] == "done"

    asyncio.run(use())
    return asked


@pytest.mark.parametrize(("kept", "seconds"), list(enumerate(AGAIN_SECONDS, start=1)))
def test_a_quiet_machine_is_calibrated_again_minutes_and_then_hours_later(
    tmp_path: Path, kept: int, seconds: float
) -> None:
    before = [LONG_AGO] * (kept - 1)
    assert again(tmp_path / "late", [*before, seconds + 1]) == [("full", "named")]
    assert again(tmp_path / "early", [*before, seconds - 60]) == []


def test_there_is_no_fifth_calibration(tmp_path: Path) -> None:
    assert again(tmp_path / "three", [LONG_AGO] * 3) == [("full", "named")]
    assert again(tmp_path / "four", [LONG_AGO] * 4) == []


def test_where_nobody_waits_for_it_a_machine_is_calibrated_in_full(tmp_path: Path) -> None:
    assert again(tmp_path, [LONG_AGO], effort="quick") == [("full", "named")]


def test_a_calibration_that_a_wrong_clock_dated_into_the_future_is_of_no_known_age(tmp_path: Path) -> None:
    assert again(tmp_path, [-LONG_AGO]) == [("full", "named")]


def test_calibrations_that_do_not_count_are_made_up_for_but_not_without_end(tmp_path: Path) -> None:
    assert again(tmp_path / "1", [LONG_AGO] * 4, counting=1) == [("full", "named")]
    assert again(tmp_path / "2", [LONG_AGO] * LOOKED_AT, counting=1) == []


def test_calibrations_that_measured_as_before_an_update_are_made_up_for(tmp_path: Path) -> None:
    assert again(tmp_path / "1", [LONG_AGO] * 4, method=METHOD - 1) == [("full", "named")]
    assert again(tmp_path / "2", [LONG_AGO] * 3 + [60.0], method=METHOD - 1) == []
    assert again(tmp_path / "3", [LONG_AGO] * LOOKED_AT, method=METHOD - 1) == [("full", "named")]


def test_calibrations_on_memory_that_a_new_virtual_machine_did_not_have_yet_are_made_up_for(tmp_path: Path) -> None:
    assert again(tmp_path, [LONG_AGO] * 4, method=1) == [("full", "named")]


def test_a_calibration_that_could_not_be_saved_is_as_old_as_one_that_could(tmp_path: Path) -> None:
    """Else a machine whose disk is full is calibrated every minute."""
    assert again(tmp_path, [LONG_AGO], unsaved=True) == []


def test_what_this_calibrated_it_does_not_again_at_once_and_not_without_end(tmp_path: Path) -> None:
    """Whatever became of it."""

    async def use() -> None:
        async with Crosspoint(Settings(data_dir=tmp_path)) as crosspoint:
            upkeep, now = Upkeep(crosspoint), asyncio.get_running_loop().time()
            assert upkeep._may_again()
            for count, seconds in enumerate((*AGAIN_SECONDS, AGAIN_SECONDS[-1]), start=1):
                before = [now - LONG_AGO] * (count - 1)
                upkeep._calibrated = [*before, now - seconds - 1]
                assert upkeep._may_again()
                upkeep._calibrated = [*before, now - seconds + 60]
                assert not upkeep._may_again()
            upkeep._calibrated = [now - LONG_AGO] * LOOKED_AT
            assert not upkeep._may_again()

    asyncio.run(use())


def test_a_further_calibration_that_gave_way_is_not_begun_anew_at_once(tmp_path: Path) -> None:
    """Where measurements come more often than it takes it would never be done, and hold the cores all the time."""

    async def gives_way(*_: object) -> bool:
        return False

    async def use() -> None:
        async with Crosspoint(Settings(data_dir=tmp_path)) as crosspoint:
            upkeep = Upkeep(crosspoint)
            upkeep._calibrate = gives_way  # type: ignore[method-assign]
            await upkeep._calibrate_again("named")
            assert upkeep._not_before > asyncio.get_running_loop().time() + 60

    asyncio.run(use())


def test_somebody_s_job_and_a_profile_from_elsewhere_are_left_alone(tmp_path: Path) -> None:
    assert again(tmp_path / "1", [LONG_AGO], Load(busy_fraction=0.9, steal_fraction=0.0)) == []
    assert again(tmp_path / "2", [LONG_AGO], imported=True) == []


def test_a_card_that_no_calibration_measured_is_made_up_for_however_many_count(tmp_path: Path) -> None:
    """As after four of the CPU alone."""

    async def use() -> None:
        async with Crosspoint(Settings(data_dir=tmp_path)) as crosspoint:
            survey = replace(await crosspoint.survey(), accelerators=(a_gpu(),))
            profile = replace(a_profile(fingerprint=survey.fingerprint), name="named", calibrations=POOLED)
            with_card = replace(profile, points=a_profile((ONE, TWO, GPU)).points)
            by_a_like_one = replace(profile, like={"cuda:0": "cuda:1"})
            for _ in range(POOLED):
                await crosspoint.store.keep_profile(profile, profile)

            async def long_ago(name: str, fingerprint: str, method: int | None = None) -> list[float]:
                return [time.time() - LONG_AGO] * POOLED

            crosspoint.store.calibration_times = long_ago  # type: ignore[method-assign]
            upkeep = Upkeep(crosspoint)
            lacking = [await upkeep._lacks_another(survey, each) for each in (profile, with_card, by_a_like_one)]
            assert lacking == [True, False, False]

    asyncio.run(use())
