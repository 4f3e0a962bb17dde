"""A trace is made once for all who ask for it, and what was measured before it teaches from then on."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.advisor.request import Request
from app.api.problems import problem_from
from app.errors import LabError
from app.keeping import Kept, RunJob
from app.lab import Lab
from app.service import Crosspoint
from app.settings import Settings
from app.traces import OUT_OF_MEMORY_SECONDS, TOO_SLOW_SECONDS, Traces
from probes.hardware import Cpu, Outcome, ProbeReport, Survey, Torch
from probes.workload.description import Workload
from probes.workload.models import parse_model
from tests.app.advisor.build import ONE, a_measurement
from tests.app.advisor.machine import a_profile
from tests.app.lab.programs import serving
from tests.app.opened import with_crosspoint
from tests.probes.machines import write_machine, x86_machine

IRIS = Workload(parse_model("iris-mlp"), 64)


pytestmark = pytest.mark.usefixtures("own_lock")


def tracing(folder: Path, *lines: str) -> tuple[str, ...]:
    """A child that has one trace for whatever it is asked, and writes each job down; lines: it runs then."""
    (folder / "trace.json").write_text(json.dumps(a_profile().networks[0].trace.to_json()), encoding="utf-8")
    return serving(
        f"open({str(folder / 'jobs')!r}, 'a').write(line)",
        *lines,
        f"say(event='result', job=job['job'], result=json.load(open({str(folder / 'trace.json')!r})))",
    )


def jobs(folder: Path) -> int:
    return len((folder / "jobs").read_text(encoding="utf-8").splitlines())


def test_a_model_that_several_ask_for_at_once_is_traced_once(tmp_path: Path) -> None:
    async def use(crosspoint: Crosspoint) -> None:
        sizes = (8, 16, 32, 64)  # a trace is for every batch size
        answers = await asyncio.gather(
            *(crosspoint.recommend(Request(replace(IRIS, batch_size=size))) for size in sizes),
            *(crosspoint.trace(IRIS) for _ in range(4)),
        )
        assert len(answers) == 8
        await crosspoint.trace(replace(IRIS, mode="inference"))

    with_crosspoint(tmp_path, use, tracing(tmp_path))
    assert jobs(tmp_path) == 2


def test_a_trace_goes_on_when_who_asked_first_leaves_and_serves_who_asked_meanwhile(tmp_path: Path) -> None:
    async def use(crosspoint: Crosspoint) -> None:
        first, second = (asyncio.create_task(crosspoint.trace(IRIS)) for _ in range(2))
        while not (tmp_path / "jobs").exists():  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(0.001)
        first.cancel()
        assert (await second).operations
        assert first.cancelled()

    with_crosspoint(tmp_path, use, tracing(tmp_path))
    assert jobs(tmp_path) == 1


def test_a_trace_that_failed_is_tried_again_by_who_asks_next(tmp_path: Path) -> None:
    program = serving('say(event="failed", job=job["job"], code="invalid-model", reason="No.")')

    async def use(crosspoint: Crosspoint) -> None:
        found = await asyncio.gather(*(crosspoint.trace(IRIS) for _ in range(3)), return_exceptions=True)
        assert {getattr(error, "code", None) for error in found} == {"invalid-model"}
        with pytest.raises(LabError, match="No"):
            await crosspoint.trace(IRIS)

    with_crosspoint(tmp_path, use, program)


def test_who_has_more_time_than_the_trace_that_is_made_is_not_refused_with_it(tmp_path: Path) -> None:
    too_slow = 'say(event="failed", job=job["job"], code="too-slow", reason="It was ended.")'

    async def use(crosspoint: Crosspoint) -> None:
        survey = await crosspoint.survey()
        asked = (crosspoint.new_trace(survey, IRIS, seconds=seconds) for seconds in (5.0, 60.0, 5.0, 60.0))
        first, second, third, fourth = await asyncio.gather(*asked, return_exceptions=True)
        assert [getattr(error, "code", None) for error in (first, third)] == ["too-slow"] * 2
        assert isinstance(second, Kept)
        assert fourth is second

    with_crosspoint(tmp_path, use, tracing(tmp_path, f"if job['seconds'] < 60: {too_slow}; continue"))
    assert jobs(tmp_path) == 2


def test_who_has_less_time_than_the_trace_that_is_made_waits_no_longer_for_it(tmp_path: Path) -> None:
    allowed = tmp_path / "allowed"

    async def use(crosspoint: Crosspoint) -> None:
        survey = await crosspoint.survey()
        patient = asyncio.create_task(crosspoint.new_trace(survey, IRIS, seconds=60.0))
        while not (tmp_path / "jobs").exists():  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(0.001)
        with pytest.raises(LabError, match="not there after 0 seconds") as refused:
            await asyncio.wait_for(crosspoint.new_trace(survey, IRIS, seconds=0.01), 5.0)
        assert refused.value.code == "too-slow"
        allowed.touch()
        assert (await patient).value.operations

    waiting = f"while not os.path.exists({str(allowed)!r}): time.sleep(0.001)"
    with_crosspoint(tmp_path, use, tracing(tmp_path, waiting))
    assert jobs(tmp_path) == 1


def refusing(code: str) -> RunJob:
    async def run(job: dict[str, Any]) -> dict[str, Any]:
        raise LabError(code, "It has too many operations.")

    return run


@pytest.mark.parametrize(
    ("code", "lasts"),
    [("too-slow", True), ("unsupported", True), ("out-of-memory", True), ("failed", False), ("killed", False)],
)
def test_a_refusal_that_another_try_would_meet_again_is_remembered_until_there_is_more_time(
    tmp_path: Path, code: str, lasts: bool
) -> None:
    async def use(crosspoint: Crosspoint) -> None:
        survey = await crosspoint.survey()
        with pytest.raises(LabError):
            await crosspoint.new_trace(survey, IRIS, refusing(code), seconds=5.0)
        for seconds, remembered in ((4.0, lasts), (5.0, lasts), (6.0, False)):
            refusal = crosspoint.trace_refusal(survey, IRIS, seconds, devices=False)
            assert (refusal is not None) == remembered
            assert refusal is None or (refusal.code, str(refusal)) == (code, "It has too many operations.")
        other = replace(IRIS, mode="inference")
        assert crosspoint.trace_refusal(survey, other, 5.0, devices=False) is None
        assert crosspoint.trace_refusal(survey, IRIS, 5.0, devices=True) is None

    with_crosspoint(tmp_path, use)


def test_who_asks_again_is_told_when_another_try_is_made(tmp_path: Path) -> None:
    """What ran out of memory is answered from memory until then."""
    now = [0.0]

    async def use(crosspoint: Crosspoint) -> None:
        survey, traces = await crosspoint.survey(), Traces(crosspoint.store, lambda: now[0])
        with pytest.raises(LabError) as failed:
            await traces.make(survey, IRIS, refusing("out-of-memory"), 5.0, devices=False)
        now[0] = 12.5
        later = traces.refusal(survey, IRIS, 5.0, devices=False)
        problems = [problem_from(error) for error in (failed.value, later) if error is not None]
        assert [(each.status, each.title) for each in problems] == [(503, "Measuring or tracing failed")] * 2
        assert [each.headers["Retry-After"] for each in problems] == ["60", "48"]

    with_crosspoint(tmp_path, use)


@pytest.mark.parametrize(
    ("code", "seconds", "lasts"),
    [
        ("too-slow", TOO_SLOW_SECONDS, False),
        ("out-of-memory", OUT_OF_MEMORY_SECONDS, False),
        ("unsupported", TOO_SLOW_SECONDS, True),
    ],
)
def test_what_may_come_another_time_is_tried_again_later(
    tmp_path: Path, code: str, seconds: float, *, lasts: bool
) -> None:
    now = [0.0]

    async def use(crosspoint: Crosspoint) -> None:
        survey, traces = await crosspoint.survey(), Traces(crosspoint.store, lambda: now[0])
        with pytest.raises(LabError):
            await traces.make(survey, IRIS, refusing(code), 5.0, devices=False)
        now[0] = seconds - 1
        assert traces.refusal(survey, IRIS, 5.0, devices=False) is not None
        now[0] = seconds
        assert (traces.refusal(survey, IRIS, 5.0, devices=False) is not None) is lasts

    with_crosspoint(tmp_path, use)


def test_so_many_refusals_are_remembered_the_last_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.traces.REMEMBERED_REFUSALS", 2)

    async def use(crosspoint: Crosspoint) -> None:
        survey = await crosspoint.survey()
        workloads = [IRIS, replace(IRIS, mode="inference"), replace(IRIS, optimizer="sgd")]
        for workload in workloads:
            with pytest.raises(LabError):
                await crosspoint.new_trace(survey, workload, refusing("too-slow"))
        refusals = [crosspoint.trace_refusal(survey, each, 1.0, devices=False) for each in workloads]
        assert [refusal is not None for refusal in refusals] == [False, True, True]

    with_crosspoint(tmp_path, use)


def test_what_was_measured_of_a_model_that_nobody_had_traced_teaches_once_it_is_traced(tmp_path: Path) -> None:
    async def use(crosspoint: Crosspoint) -> None:
        survey = await crosspoint.survey()
        document = {"measurements": [a_measurement(ONE, 64, 1e-3).to_json()]}
        await crosspoint.keep_measurements(survey, IRIS, document)
        assert await crosspoint.store.lessons(survey.fingerprint) == []
        await crosspoint.trace(IRIS)
        (lesson,) = await crosspoint.store.lessons(survey.fingerprint)
        assert (lesson.plan, lesson.batch_size, lesson.seconds) == (ONE, 64, 1e-3)

    with_crosspoint(tmp_path, use, tracing(tmp_path))


def test_a_trace_is_of_the_cpu_that_it_was_made_on(tmp_path: Path) -> None:
    async def use(crosspoint: Crosspoint) -> None:
        survey = await crosspoint.survey()
        moved = replace(survey, cpu=replace(survey.cpu, name="Another CPU", instruction_sets=("sse2",)))
        trace = await crosspoint.trace(IRIS)
        for traces in (crosspoint.known_trace, Traces(crosspoint.store).find):  # out of memory, and the store
            assert await traces(survey, IRIS) == trace
            assert await traces(moved, IRIS) is None

    with_crosspoint(tmp_path, use, tracing(tmp_path))


def without_cpu(survey: Survey) -> Survey:
    """As where what tells of it took too long."""
    probes = {**survey.probes, "cpu": ProbeReport(Outcome.TIMEOUT, None, "It took too long.")}
    return replace(survey, cpu=Cpu(), probes=probes)


def test_a_survey_that_does_not_tell_the_cpu_hides_no_trace_and_makes_none_that_is_hidden(tmp_path: Path) -> None:
    async def use(crosspoint: Crosspoint) -> None:
        survey = await crosspoint.survey()
        silent = without_cpu(survey)
        trace = await crosspoint.trace(IRIS)
        other = replace(IRIS, mode="inference")
        made = (await crosspoint.new_trace(silent, other)).value
        for traces in (crosspoint.known_trace, Traces(crosspoint.store).find):  # out of memory, and the store
            assert await traces(silent, IRIS) == trace
            assert await traces(survey, other) == made

    with_crosspoint(tmp_path, use, tracing(tmp_path))


def test_what_answers_a_survey_that_does_not_tell_the_cpu_answers_no_later_one(tmp_path: Path) -> None:
    """Of two machines that share the store: the newest trace may be the other's."""

    async def use(crosspoint: Crosspoint) -> None:
        survey = await crosspoint.survey()
        other = replace(survey, cpu=replace(survey.cpu, name="Another CPU", instruction_sets=("sse2",)))
        of_both = [(await crosspoint.new_trace(each, IRIS)).value for each in (survey, other)]
        traces = Traces(crosspoint.store)
        assert await traces.find(without_cpu(survey), IRIS) == of_both[1]
        assert [await traces.find(each, IRIS) for each in (survey, other)] == of_both
        assert of_both[0] != of_both[1]

    with_crosspoint(tmp_path, use, tracing(tmp_path))


def test_a_trace_for_a_captured_machine_is_of_the_torch_and_the_cpu_of_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    captured = write_machine(tmp_path / "captured", x86_machine())

    async def ask(known: bool) -> None:
        settings = Settings(data_dir=tmp_path / "data", sysroot=captured)
        async with Crosspoint(settings, Lab(settings, tracing(tmp_path))) as crosspoint:
            survey = await crosspoint.survey()
            assert (await crosspoint.known_trace(survey, IRIS) is not None) is known
            await crosspoint.trace(IRIS)
            assert await crosspoint.known_trace(survey, IRIS) is not None

    async def know(crosspoint: Crosspoint) -> None:
        assert await crosspoint.known_trace(await crosspoint.survey(), IRIS) is not None

    asyncio.run(ask(known=False))
    with_crosspoint(tmp_path / "data", know)
    with monkeypatch.context() as upgraded:
        upgraded.setattr("app.traces.read_torch", lambda: Torch(version="99.0"))
        asyncio.run(ask(known=False))
    with monkeypatch.context() as another_host:
        another_host.setattr("app.traces._read_own_cpu", lambda: "another")
        asyncio.run(ask(known=False))
    asyncio.run(ask(known=True))
