"""What the service does by itself before anybody asks."""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from app.advisor.time_model import predicted
from app.advisor.time_model.pooled import LOOKED_AT, POOLED
from app.jobs import Jobs
from app.lab import Lab
from app.service import Crosspoint
from app.settings import Settings
from app.store.store import FILE_NAME
from app.upkeep import AGAIN_SECONDS, ROOMY_BYTES, SCARCE_REST_SECONDS, Upkeep, _rest_seconds, is_quiet
from probes.hardware import Load, Memory, Survey
from probes.profile import METHOD, Profile
from probes.workload.description import MODES
from tests.app.advisor.build import ONE, TWO, a_gpu, a_survey
from tests.app.advisor.machine import GPU, a_profile
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
LONG_AGO = 9 * max(AGAIN_SECONDS)


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


def test_somebody_s_job_and_a_profile_from_elsewhere_are_left_alone(tmp_path: Path) -> None:
    assert again(tmp_path / "1", [LONG_AGO], Load(busy_fraction=0.9, steal_fraction=0.0)) == []
    assert again(tmp_path / "2", [LONG_AGO], imported=True) == []


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
