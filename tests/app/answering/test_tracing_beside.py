"""A model that is new is traced while others measure; what comes of it, or of none, for those who ask and wait."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from app.advisor.recommendation import Recommendation
from app.advisor.request import Request
from app.errors import LabBusy, LabError
from app.service import Crosspoint
from tests.app.advisor.machine import a_profile
from tests.app.answering.obedient import COLD, ask, jobs, obedient
from tests.app.opened import with_crosspoint

pytestmark = pytest.mark.usefixtures("own_lock")


def test_whoever_waits_for_a_trace_holds_nobody_up_who_measures(tmp_path: Path) -> None:
    """Tracing a model that is new takes up to a minute; the machine is free meanwhile."""
    begun = tmp_path / "begun"
    program = obedient(tmp_path / "jobs", of_a_trace=f"open({str(begun)!r}, 'w').close(); time.sleep(600)")

    async def use(crosspoint: Crosspoint) -> Recommendation:
        await crosspoint.lab.ready()
        assert crosspoint.lab.tracer_is_warm
        cold = asyncio.create_task(crosspoint.recommend(Request(COLD, effort="quick")))
        while not begun.exists():  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(0.01)
        assert not crosspoint.lab.waiting
        answer = await ask(crosspoint)
        cold.cancel()
        await asyncio.wait([cold])
        return answer

    answer = with_crosspoint(tmp_path, use, program)
    assert {option.basis for option in answer.options} == {"measured"}


def test_a_question_that_the_queue_has_no_place_for_is_told_so_before_its_model_is_traced(tmp_path: Path) -> None:
    async def use(crosspoint: Crosspoint) -> None:
        await crosspoint.lab.ready()
        held = [crosspoint.lab.reserve(600.0) for _ in range(crosspoint.settings.queue_length + 1)]
        with pytest.raises(LabBusy, match="queue is full"):
            await crosspoint.recommend(Request(COLD, effort="quick"))
        for ticket in held:
            crosspoint.lab.release(ticket)

    heard = tmp_path / "jobs"
    with_crosspoint(tmp_path, use, obedient(heard))
    assert not heard.exists()


@pytest.mark.parametrize(
    "of_a_trace",
    [
        "__import__('time').sleep(60)",
        "say(event='failed', job=job['job'], code='failed', reason='It failed unexpectedly.'); continue",
    ],
    ids=["too slow", "failed"],
)
def test_a_model_whose_trace_cannot_be_had_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of_a_trace: str
) -> None:
    """A loop of many small steps in somebody's own code takes a second a step, and minutes to follow."""
    monkeypatch.setattr("app.answering.following.TRACE_SECONDS", 0.5)

    async def ask_cold(crosspoint: Crosspoint) -> Recommendation:
        return await crosspoint.recommend(Request(COLD, effort="quick"))

    answer = with_crosspoint(tmp_path, ask_cold, obedient(tmp_path / "jobs", of_a_trace=of_a_trace))
    assert answer.recommended is not None
    assert {option.basis for option in answer.options} == {"measured"}
    (reason,) = [reason for reason in answer.reasons if reason.code == "not-traced"]
    assert "not traced" in reason.text


def traces(heard: Path) -> int:
    return sum(job["kind"] == "trace" for job in jobs(heard))


REFUSED = "say(event='failed', job=job['job'], code='unsupported', reason='It asks its numbers.'); continue"
KILLED = "os.kill(os.getpid(), signal.SIGKILL)"


def test_a_model_that_cannot_be_traced_is_answered_from_its_measurements_without_another_try(tmp_path: Path) -> None:
    """Each would take up to a minute, and end the process that traces for all."""

    async def use(crosspoint: Crosspoint) -> list[Recommendation]:
        await crosspoint.lab.ready()
        questions = [Request(COLD, effort="quick"), Request(COLD), Request(replace(COLD, batch_size=8), effort="quick")]
        return [await crosspoint.recommend(question) for question in questions]

    heard = tmp_path / "jobs"
    answers = with_crosspoint(tmp_path, use, obedient(heard, of_a_trace=REFUSED))
    assert traces(heard) == 1
    for answer in answers:
        assert {option.basis for option in answer.options} == {"measured"}
        assert "not-traced" in {reason.code for reason in answer.reasons}


def test_a_model_whose_trace_was_refused_is_measured_without_another_try(tmp_path: Path) -> None:
    """As the refusal advises."""

    async def use(crosspoint: Crosspoint) -> Recommendation:
        with pytest.raises(LabError, match="asks its numbers"):
            await crosspoint.recommend(Request(COLD))
        return await crosspoint.recommend(Request(COLD, effort="quick"))

    heard = tmp_path / "jobs"
    answer = with_crosspoint(tmp_path, use, obedient(heard, of_a_trace=REFUSED))
    assert traces(heard) == 1
    assert {option.basis for option in answer.options} == {"measured"}


@pytest.mark.parametrize(
    ("of_a_trace", "tries"),
    [(REFUSED, 1), (REFUSED.replace("unsupported", "too-slow"), 2), (KILLED, 2)],
    ids=["unsupported", "too slow", "killed"],
)
def test_a_model_of_which_nothing_else_is_known_is_traced_again_where_that_may_help(
    tmp_path: Path, of_a_trace: str, tries: int
) -> None:
    async def use(crosspoint: Crosspoint) -> None:
        for _ in range(2):
            with pytest.raises(LabError):
                await crosspoint.recommend(Request(COLD))

    heard = tmp_path / "jobs"
    with_crosspoint(tmp_path, use, obedient(heard, of_a_trace=of_a_trace))
    assert traces(heard) == tries


def test_who_waits_for_the_machine_takes_the_trace_that_was_made_meanwhile(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    trace.write_text(json.dumps(a_profile().networks[0].trace.to_json()), encoding="utf-8")
    of_a_trace = f"say(event='result', job=job['job'], result=json.load(open({str(trace)!r}))); continue"

    async def use(crosspoint: Crosspoint) -> list[Recommendation]:
        assert not crosspoint.lab.tracer_is_warm
        return await asyncio.gather(*(crosspoint.recommend(Request(COLD, effort="quick")) for _ in range(2)))

    heard = tmp_path / "jobs"
    answers = with_crosspoint(tmp_path, use, obedient(heard, of_a_trace=of_a_trace))
    assert traces(heard) == 1
    assert all(option.basis == "measured" for answer in answers for option in answer.options)


def test_who_gives_up_waiting_for_the_machine_takes_the_trace_that_was_made_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.answering.recommending.LEAST_PATIENCE_SECONDS", 3.0)
    heard = tmp_path / "jobs"

    async def use(crosspoint: Crosspoint) -> Recommendation:
        survey = await crosspoint.survey()
        version = survey.software.torch.version if survey.software.torch else None
        ticket = crosspoint.lab.reserve(600.0)
        asked = asyncio.create_task(crosspoint.recommend(Request(COLD, effort="quick", time_limit_seconds=0.01)))
        while crosspoint.lab.waiting < 2:  # noqa: ASYNC110 - a queue has no event
            await asyncio.sleep(0.001)
        await crosspoint.store.keep_trace(COLD, version or "unknown", a_profile().networks[0].trace)
        answer = await asked
        crosspoint.lab.release(ticket)
        return answer

    answer = with_crosspoint(tmp_path, use, obedient(heard))
    assert not heard.exists()
    assert "not-measured" in {reason.code for reason in answer.reasons}
