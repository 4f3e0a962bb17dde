"""What the service does by itself before anybody asks."""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from dataclasses import replace
from pathlib import Path

import pytest

from app.advisor.time_model import predicted
from app.jobs import Jobs
from app.lab import Lab
from app.service import Crosspoint
from app.settings import Settings
from app.store.store import FILE_NAME
from app.upkeep import ROOMY_BYTES, SCARCE_REST_SECONDS, Upkeep, _rest_seconds, is_quiet
from probes.hardware import Load, Memory, Survey
from probes.profile import Profile
from probes.workload.description import MODES
from tests.app.advisor.build import a_gpu, a_survey
from tests.app.advisor.machine import a_profile
from tests.app.lab.programs import serving
from tests.app.serving import PATIENCE_SECONDS
from tests.app.test_jobs import with_an_end_that_is_not_stored


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
        async with Crosspoint(settings, Lab(settings, words)) as crosspoint:
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


def test_nobody_waits_for_what_is_fitted_to_a_profile(tmp_path: Path) -> None:
    async def use() -> None:
        async with Crosspoint(Settings(data_dir=tmp_path)) as crosspoint:
            survey = await crosspoint.survey()
            await crosspoint.store.keep_profile(replace(a_profile(fingerprint=survey.fingerprint), name="named"))
            await Upkeep(crosspoint)._fit_known(survey)
            asked = await crosspoint.profile(survey)
            assert asked is not None
            plans = {point.plan.key for point in asked.networks}
            assert plans
            fitted = predicted._remembered[id(asked)].models
            assert {(key, mode) for key in plans for mode in MODES} <= fitted.keys()

    asyncio.run(use())


def test_a_profile_that_cannot_be_fitted_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fit(_profile: Profile) -> None:
        raise KeyError("a name that nobody knows")

    async def use() -> None:
        async with Crosspoint(Settings(data_dir=tmp_path)) as crosspoint:
            survey = await crosspoint.survey()
            await crosspoint.store.keep_profile(a_profile(fingerprint=survey.fingerprint))
            upkeep = Upkeep(crosspoint)
            for _ in range(2):
                await upkeep._fit_known(survey)

    monkeypatch.setattr("app.upkeep.fit_all_plans", fit)
    asyncio.run(use())
    assert caplog.text.count("could not be fitted") == 1, "not with each look"


def test_how_a_job_ended_is_saved_with_the_next_look_where_it_could_not_be_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    async def use() -> None:
        settings = Settings(data_dir=tmp_path, calibrate_on_start=False)
        async with Crosspoint(settings, Lab(settings, ("/no/such/program",))) as crosspoint:
            jobs = Jobs(crosspoint.lab, crosspoint.store)
            job = await with_an_end_that_is_not_stored(jobs)
            task = asyncio.create_task(Upkeep(crosspoint, jobs).run())
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not job.is_stored:  # noqa: ASYNC110 - it has no event for that
                    await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.wait([task])
            kept = await crosspoint.store.job("measurement", job.id)
            assert kept is not None
            assert kept["state"] == "succeeded"

    asyncio.run(use())


def test_what_this_machine_is_is_kept_again_where_the_store_s_file_is_another(tmp_path: Path) -> None:
    async def use() -> None:
        async with Crosspoint(Settings(data_dir=tmp_path)) as crosspoint:
            survey, upkeep = await crosspoint.survey(), Upkeep(crosspoint)
            for _ in range(2):
                await upkeep._note_state(survey)
                assert [state["fingerprint"] for state in await crosspoint.history()] == [survey.fingerprint]
                (tmp_path / FILE_NAME).unlink()
                assert await crosspoint.history() == []

    asyncio.run(use())


IDLE = Load(busy_fraction=0.0, steal_fraction=0.0)


@pytest.mark.parametrize(
    ("load", "utilization", "quiet"),
    [
        (IDLE, None, True),
        (IDLE, 3.0, True),
        (IDLE, 60.0, False),
        (Load(busy_fraction=0.5, own_busy_fraction=0.5, steal_fraction=0.0), 0.0, True),
        (Load(busy_fraction=0.5, steal_fraction=0.0), 0.0, False),
        (Load(busy_fraction=0.0, steal_fraction=0.5), 0.0, False),
        (Load(), 0.0, False),  # nothing is known of it yet
    ],
)
def test_a_machine_is_quiet_where_nobody_else_computes(load: Load, utilization: float | None, quiet: bool) -> None:
    survey = replace(a_survey(), load=load, accelerators=(a_gpu(utilization_percent=utilization),))
    assert is_quiet(survey) is quiet


def test_a_profile_that_comes_is_looked_at_at_once(tmp_path: Path) -> None:
    async def use() -> None:
        async with Crosspoint(Settings(data_dir=tmp_path)) as crosspoint:
            upkeep = Upkeep(crosspoint)
            resting = asyncio.create_task(upkeep._rest(600.0))
            await asyncio.sleep(0)
            crosspoint.profiles.note(a_profile(), a_profile(), saved=True)
            await asyncio.wait_for(resting, 30)
            assert not crosspoint.profiles.came.is_set()

    asyncio.run(use())


def test_nothing_is_fitted_beside_a_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted: list[Profile] = []
    monkeypatch.setattr("app.upkeep.fit_all_plans", fitted.append)

    async def use() -> None:
        async with Crosspoint(Settings(data_dir=tmp_path)) as crosspoint:
            ticket = crosspoint.lab.reserve(1.0)
            ticket.started_at = time.monotonic()
            await Upkeep(crosspoint)._fit(a_profile())
            assert not fitted
            crosspoint.lab.release(ticket)
            await Upkeep(crosspoint)._fit(a_profile())
            assert len(fitted) == 1

    asyncio.run(use())


def test_a_machine_that_changes_while_it_is_calibrated_is_not_calibrated_without_end(tmp_path: Path) -> None:
    asked: list[str] = []

    async def use() -> None:
        async with Crosspoint(Settings(data_dir=tmp_path)) as crosspoint:
            real = await crosspoint.survey()
            states = itertools.count()

            async def survey(*, fresh: bool = False) -> Survey:
                return replace(real, fingerprint=f"state-{next(states)}")

            async def calibrate(effort: str, **_: object) -> Profile:
                asked.append(effort)
                profile = a_profile(fingerprint=(await crosspoint.survey(fresh=True)).fingerprint)
                await crosspoint.store.keep_profile(profile, profile)
                return profile

            crosspoint.survey = survey  # type: ignore[assignment, method-assign]
            crosspoint.calibrate = calibrate  # type: ignore[method-assign]
            upkeep = Upkeep(crosspoint)
            await asyncio.wait_for(upkeep._calibrate_if_due(await survey()), 30)
            assert upkeep.calibration["state"] == "waiting"
            assert upkeep._not_before > asyncio.get_running_loop().time()
            assert len(upkeep._calibrated) == 1

    asyncio.run(use())
    assert asked == ["quick"]


def test_a_survey_that_failed_is_no_reason_to_calibrate(tmp_path: Path) -> None:
    async def use() -> None:
        async with Crosspoint(Settings(data_dir=tmp_path)) as crosspoint:
            upkeep = Upkeep(crosspoint)
            await asyncio.wait_for(upkeep._calibrate_if_due(replace(await crosspoint.survey(), fingerprint="")), 30)
            assert upkeep.calibration["state"] == "waiting"
            assert await crosspoint.store.profile_heads() == []

    asyncio.run(use())


def test_a_single_survey_that_fails_is_no_other_machine(tmp_path: Path) -> None:
    """What was calibrated, and when to try again, stay as they were."""

    async def nothing() -> None:
        """Instead of starting a process."""

    async def use() -> None:
        async with Crosspoint(Settings(data_dir=tmp_path, calibrate_on_start=False)) as crosspoint:
            real, upkeep = await crosspoint.survey(), Upkeep(crosspoint)
            later = iter((replace(real, fingerprint=""), real))
            ends = iter((False, False, True))

            async def survey(*, fresh: bool = False) -> Survey:
                return next(later)

            async def rest(_seconds: float) -> None:
                crosspoint.survey = survey  # type: ignore[method-assign]
                if next(ends):
                    raise InterruptedError
                if not upkeep._calibrated:
                    upkeep._calibrated, upkeep._not_before = [1.0], math.inf

            upkeep._learn_torch = nothing  # type: ignore[method-assign]
            upkeep._rest = rest  # type: ignore[method-assign]
            with pytest.raises(InterruptedError):
                await upkeep._run()
            assert upkeep._calibrated == [1.0]
            assert upkeep._not_before == math.inf

    asyncio.run(use())


def test_what_a_disk_has_no_room_for_is_not_tried_with_each_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A little can be written, a profile cannot: each try is written to a log, on the same disk as likely as not."""
    tries: list[str] = []

    async def use() -> None:
        async with Crosspoint(Settings(data_dir=tmp_path)) as crosspoint:
            await crosspoint.store.open()
            database = crosspoint.store._database
            assert database is not None

            async def fail() -> None:
                tries.append("")
                database.failed = "cannot be written"

            crosspoint.profiles.save_unsaved = fail  # type: ignore[method-assign]
            upkeep = Upkeep(crosspoint)
            for _ in range(3):
                database.failed = None  # a look found that a little can be written
                await upkeep._save_unsaved()
            assert len(tries) == 1
            upkeep._unsaved_until = 0.0  # a minute later
            database.failed = None
            await upkeep._save_unsaved()

    asyncio.run(use())
    assert len(tries) == 2
