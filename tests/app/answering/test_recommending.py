"""What `quick` and `thorough` measure: every plan at the batch asked for, then the best two where they teach most."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.advisor import recommend
from app.advisor.probing import LEAST_SECONDS
from app.advisor.recommendation import Recommendation
from app.advisor.request import Request
from app.advisor.second_look import SecondLook
from app.answering.measuring_time import LEAST_SHARE, START_SECONDS, contest_seconds, seconds_left
from app.answering.real_steps import RealSteps
from app.answering.recommending import Recommending
from app.keeping import say_nothing
from app.lab import Lab
from app.service import Crosspoint
from probes.load import SURVEYED_SECONDS, LoadMeter
from tests.app.advisor.build import ONE, ONE_BF16, TWO, TWO_BF16, a_measurement, a_survey, a_workload
from tests.app.answering.obedient import IRIS, ask, jobs, obedient
from tests.app.lab.programs import serving
from tests.app.opened import with_crosspoint

pytestmark = pytest.mark.usefixtures("own_lock")


def test_every_plan_runs_at_the_batch_asked_for_and_then_some_at_others_one_after_the_other(tmp_path: Path) -> None:
    heard = tmp_path / "jobs"
    answer = with_crosspoint(tmp_path, ask, obedient(heard))
    contest, *probes = jobs(heard)
    assert contest["batch_sizes"] == [IRIS.batch_size]
    assert len(contest["plans"]) == len(answer.options)
    assert probes
    # Where the time does not do for two, one runs alone.
    assert len(probes[0]["plans"]) >= min(2, len(answer.options))
    assert {option.basis for option in answer.options} == {"measured"}
    sizes = [size for probe in probes for size in probe["batch_sizes"]]
    assert len({IRIS.batch_size, *sizes}) == 1 + len(probes)
    assert contest["enough_seconds"] <= 0.55 * 10.0 < contest["seconds"] <= 10.0  # the rest for plans that have little
    assert all(contest["enough_seconds"] + probe["seconds"] <= 15.5 for probe in probes)


def test_an_estimate_between_batches_that_ran_is_probed(tmp_path: Path) -> None:
    async def use(crosspoint: Crosspoint) -> set[str | None]:
        await ask(crosspoint)
        _, probe, *_ = jobs(heard)
        between = round(math.sqrt(IRIS.batch_size * probe["batch_sizes"][0]))
        answer = await crosspoint.recommend(Request(replace(IRIS, batch_size=between)))
        return {option.basis for option in answer.options}

    heard = tmp_path / "jobs"
    assert "probed" in with_crosspoint(tmp_path, use, obedient(heard))


def test_a_process_that_dies_over_other_batches_costs_the_answer_nothing(tmp_path: Path) -> None:
    heard = tmp_path / "jobs"
    answer = with_crosspoint(tmp_path, ask, obedient(heard, of_more_sizes="os.kill(os.getpid(), signal.SIGKILL)"))
    assert len(jobs(heard)) == 2
    assert {option.basis for option in answer.options} == {"measured"}
    assert all(reason.code != "not-measured" for reason in answer.reasons)


def test_where_the_plans_job_ended_its_process_another_one_runs_the_other_batches(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As after a step that lost its device, or outlasted all the time."""
    heard = tmp_path / "jobs"
    alone = f"job['batch_sizes'] == [{IRIS.batch_size}]"
    answer = with_crosspoint(tmp_path, ask, obedient(heard, end=alone))
    assert len({size for job in jobs(heard) for size in job["batch_sizes"]}) > 1
    assert {option.basis for option in answer.options} == {"measured"}
    assert "ended" not in caplog.text


def test_no_process_is_begun_for_other_batches_where_the_time_does_not_do_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RealSteps, "_least_probing_seconds", lambda _, child: 0.0 if child.alive else math.inf)
    heard = tmp_path / "jobs"
    with_crosspoint(tmp_path, ask, obedient(heard, end=True))
    assert [job["batch_sizes"] for job in jobs(heard)] == [[IRIS.batch_size]]


def test_what_nothing_bears_out_is_run_once_more_and_the_quicker_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine is slow while the first plans run, and quick for one of the two that have a second turn."""

    def look(
        _known: Any, _seconds: float, sizes: Collection[int], _to_begin: float, _before: Collection[int]
    ) -> SecondLook | None:
        both = frozenset((ONE.key, TWO.key))
        return SecondLook((ONE, TWO), IRIS.batch_size, 1.0, both) if IRIS.batch_size in sizes else None

    monkeypatch.setattr("app.answering.real_steps.choose_second_look", look)
    heard = tmp_path / "jobs"
    looked_twice = "len(job['plans']) == 2 and size == 64"
    slow = f"s *= (4 if plan['threads'] == 1 else 1) if {looked_twice} else 2"
    answer = with_crosspoint(tmp_path, ask, obedient(heard, of_a_step=slow))
    again = [job for job in jobs(heard)[1:] if job["batch_sizes"] == [IRIS.batch_size]]
    assert [[plan["threads"] for plan in job["plans"]] for job in again] == [[1, 2]]
    times = {option.plan.label: option.step_seconds for option in answer.options}
    one, two = times[ONE.label], times[TWO.label]
    assert one is not None
    assert two is not None
    assert (one.median, two.median) == (pytest.approx(2 * 0.065), pytest.approx(0.0325))


def test_no_other_batch_runs_where_the_time_is_short(tmp_path: Path) -> None:
    async def use(crosspoint: Crosspoint) -> Recommendation:
        return await ask(crosspoint, time_limit_seconds=0.5)

    heard = tmp_path / "jobs"
    with_crosspoint(tmp_path, use, obedient(heard))
    assert [job["batch_sizes"] for job in jobs(heard)] == [[IRIS.batch_size]]


def test_a_real_model_runs_at_other_batches_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "app.answering.variants.environment_here", lambda: None
    )  # so that no time goes into trying another

    async def use(crosspoint: Crosspoint) -> set[int]:
        await crosspoint.trace(IRIS)
        await crosspoint.recommend(Request(IRIS, effort="thorough", precision="fp32", time_limit_seconds=30.0))
        rows = await crosspoint.measurements(await crosspoint.survey(), IRIS)
        return {row.batch_size for row in rows if row.outcome == "ok"}

    assert len(with_crosspoint(tmp_path, use)) > 1


def test_the_batch_asked_for_gets_most_of_the_time_and_all_where_steps_are_long() -> None:
    quick, slow = (
        recommend(
            a_survey(), None, None, [a_measurement(plan, 16, step) for plan in (ONE, TWO)], Request(a_workload(16))
        )
        for step in (0.01, 1.0)
    )
    assert contest_seconds(quick, (ONE, TWO), 10.0) == pytest.approx(5.5)
    assert contest_seconds(slow, (ONE, TWO), 10.0) == 10.0
    assert contest_seconds(slow, (ONE, TWO), 100.0) == pytest.approx(55.0)


def test_a_plan_that_is_far_slower_takes_no_time_from_other_batches() -> None:
    plans, steps = (ONE, TWO, ONE_BF16, TWO_BF16), (0.02, 0.015, 0.4, 0.3)  # without instructions for bf16
    rows = [a_measurement(plan, 16, step) for plan, step in zip(plans, steps, strict=True)]
    found = recommend(a_survey(), None, None, rows, Request(a_workload(16)))
    assert contest_seconds(found, plans, 10.0) == pytest.approx(5.5)


@pytest.mark.parametrize(("to_begin", "runs"), [(1.0, True), (60.0, False)])
def test_a_batch_is_run_where_the_time_does_for_building_the_model_once_more(
    tmp_path: Path, to_begin: float, *, runs: bool
) -> None:
    heard = tmp_path / "jobs"
    with_crosspoint(tmp_path, ask, obedient(heard, to_begin=to_begin))
    _, *probes = jobs(heard)
    assert bool(probes) == runs
    assert all(probe["seconds"] >= to_begin + LEAST_SECONDS for probe in probes)


def test_starting_is_not_on_the_time_for_measuring_up_to_a_few_seconds() -> None:
    assert seconds_left(10.0, START_SECONDS) == 10.0
    assert seconds_left(10.0, START_SECONDS + 4.0) == pytest.approx(6.0)
    assert seconds_left(10.0, 0.0) == 10.0
    assert seconds_left(10.0, 20.0) < 0


def test_what_begins_late_keeps_time_for_its_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.answering.measuring_time.START_SECONDS", -20.0)  # as if that much more had gone
    heard = tmp_path / "jobs"
    with_crosspoint(tmp_path, ask, obedient(heard))
    assert [job["seconds"] for job in jobs(heard)] == [LEAST_SHARE * 10.0]


LATE = serving(
    "reason = 'One step was not done in time. More time would do.'",
    "rows = [dict(plan=plan, batch_size=size, data='resident', outcome='failed', reason=reason)",
    "        for size in job['batch_sizes'] for plan in job['plans']]",
    "say(event='result', job=job['job'], result=dict(measurements=rows, noise={}))",
)


def test_a_run_that_had_no_time_for_a_step_hides_no_measurement_before_it(tmp_path: Path) -> None:
    async def use(crosspoint: Crosspoint) -> Recommendation:
        await ask(crosspoint)
        await crosspoint.lab.close()
        crosspoint.lab = Lab(crosspoint.settings, LATE)
        return await ask(crosspoint)

    answer = with_crosspoint(tmp_path, use, obedient(tmp_path / "jobs"))
    assert {option.basis for option in answer.options} == {"measured"}


def test_an_answer_from_what_is_known_knows_who_holds_cores_though_it_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("probes.load._lately", LoadMeter(SURVEYED_SECONDS))  # as in a process that has read nothing

    async def use(crosspoint: Crosspoint) -> None:
        survey = await crosspoint.survey()
        assert survey.load.busy_fraction is None
        answering = Recommending(crosspoint, Request(IRIS), say_nothing, None)
        assert (await answering._with_load(survey)).load.busy_fraction is not None

    with_crosspoint(tmp_path, use)


@pytest.mark.parametrize(("outcome", "told"), [("failed", True), ("unsupported", False)])
def test_steps_that_all_failed_are_told_as_no_measurement(tmp_path: Path, outcome: str, *, told: bool) -> None:
    """What torch refuses is an answer."""
    fails = f"rows.append(dict(known, outcome='{outcome}', reason='The step failed (RuntimeError): boom.')); continue"
    answer = with_crosspoint(tmp_path, ask, obedient(tmp_path / "jobs", of_a_step=fails))
    reasons = [reason for reason in answer.reasons if reason.code == "not-measured"]
    assert [reason.evidence["possible"] for reason in reasons] == ([True] if told else [])
    assert all("boom" in reason.text for reason in reasons)
