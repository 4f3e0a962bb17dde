"""What the service does by itself before anybody asks."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from app.lab import Lab
from app.service import Crosspoint
from app.settings import Settings
from app.upkeep import ROOMY_BYTES, SCARCE_REST_SECONDS, Upkeep, _rest_seconds
from probes.hardware import Memory
from tests.app.advisor.build import a_survey
from tests.app.lab.programs import serving


@pytest.mark.parametrize(
    ("free", "seconds"), [(ROOMY_BYTES, None), (ROOMY_BYTES - 1, SCARCE_REST_SECONDS), (None, SCARCE_REST_SECONDS)]
)
def test_where_memory_is_scarce_the_process_that_traces_does_not_stay(free: int | None, seconds: float | None) -> None:
    assert _rest_seconds(replace(a_survey(), memory=Memory(usable_bytes=free))) == seconds


def test_a_process_that_cannot_prepare_is_used_all_the_same(tmp_path: Path) -> None:
    """It fails to load transformers, say; layer lists need none."""
    words = serving('say(event="failed", job=job["job"], code="unsupported", reason="No transformers here.")')

    async def use() -> None:
        settings = Settings(data_dir=tmp_path, calibrate_on_start=False)
        async with Crosspoint(settings) as crosspoint:
            crosspoint.lab = Lab(settings, words)
            upkeep = Upkeep(crosspoint)
            await upkeep._learn_torch()
            assert crosspoint.lab.tracer_is_warm

    asyncio.run(use())


def test_the_measuring_process_prepares_for_the_first_config(tmp_path: Path) -> None:
    async def use() -> None:
        async with Crosspoint(Settings(data_dir=tmp_path)) as crosspoint:
            await crosspoint.lab.prepare()
            assert crosspoint.lab.tracer_is_warm

    asyncio.run(use())
