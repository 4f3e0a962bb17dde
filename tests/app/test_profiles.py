"""What a calibration added to this machine's profile."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from app.advisor.pooled import LOOKED_AT, pool
from app.profiles import newest_devices
from app.service import Crosspoint
from app.settings import Settings
from app.store.profiles import KEPT_PROFILES_EACH
from probes.profile import Profile
from tests.app.advisor.build import ONE
from tests.app.advisor.machine import GPU, a_profile

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


def test_as_many_calibrations_are_looked_at_as_are_kept() -> None:
    assert LOOKED_AT == KEPT_PROFILES_EACH
