"""One facade for HTTP and command line: what is known is used, what fails costs no more than itself."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from app.advisor.recommendation import Recommendation
from app.advisor.request import InvalidRequest, Request
from app.errors import LabError, UnknownProfile
from app.lab import Lab
from app.service import Crosspoint
from app.settings import Settings
from probes.hardware import Survey
from probes.workload.description import Plan, Workload
from probes.workload.models import parse_model
from tests.app.advisor.build import ONE, TWO, a_gpu, a_measurement, a_survey
from tests.app.advisor.machine import GPU, a_profile
from tests.app.calibrating import calibrating
from tests.app.lab.programs import serving
from tests.app.opened import with_crosspoint
from tests.app.test_store import PROFILE

T = TypeVar("T")
IRIS = Workload(parse_model("iris-mlp"), 8)
FIGURES = {"parameters": 10**6, "flops_per_sample": 10**9, "activation_bytes_per_sample": 10**6, "operations": 50}
SUMMARY = Workload(parse_model({"summary": FIGURES}), 8)
QUICK = Request(IRIS, effort="quick", time_limit_seconds=3.0)


pytestmark = pytest.mark.usefixtures("own_lock")


def measured_plans(answer: Recommendation) -> set[object]:
    """All of the answer's, unless the machine is so slow that the time was over before some had a step; probed: beside
    others who hold cores there was one sample."""
    return {option.plan.key for option in answer.options if option.basis in ("measured", "probed")}


def test_a_real_model_is_traced_once_measured_and_recommended(tmp_path: Path) -> None:
    heard: list[tuple[float, str]] = []
    measured: set[object] = set()

    async def use(crosspoint: Crosspoint) -> None:
        trace = await crosspoint.trace(IRIS)
        assert trace.parameters == 83
        assert not crosspoint.lab.measuring
        answer = await crosspoint.recommend(QUICK, lambda fraction, message: heard.append((fraction, message)))
        assert answer.recommended is not None
        measured.update(measured_plans(answer))
        assert measured
        kept = await crosspoint.measurements(await crosspoint.survey(), IRIS)
        assert {item.plan.key for item in kept} >= measured

    async def use_again(crosspoint: Crosspoint) -> None:
        answer = await crosspoint.recommend(Request(IRIS))
        assert measured_plans(answer) == measured
        assert not crosspoint.lab.tracer_is_warm

    with_crosspoint(tmp_path, use)
    assert heard[-1][0] > 0
    with_crosspoint(tmp_path, use_again, serving("os._exit(9)"))


def test_a_measurement_that_fails_costs_the_answer_its_basis_only(tmp_path: Path) -> None:
    async def trace(crosspoint: Crosspoint) -> None:
        await crosspoint.trace(IRIS)

    async def use(crosspoint: Crosspoint) -> None:
        answer = await crosspoint.recommend(QUICK)
        (reason,) = [reason for reason in answer.reasons if reason.code == "not-measured"]
        assert "killed" in reason.text
        with pytest.raises(LabError, match="killed"):
            await crosspoint.measure(QUICK, seconds=1)

    with_crosspoint(tmp_path, trace)
    with_crosspoint(tmp_path, use, serving("os.kill(os.getpid(), signal.SIGKILL)"))


def test_what_a_user_has_to_mend_is_an_error(tmp_path: Path) -> None:
    words = serving('say(event="failed", job=job["job"], code="unsupported", reason="This layer cannot be traced.")')

    async def use(crosspoint: Crosspoint) -> None:
        for effort in ("instant", "quick"):
            with pytest.raises(LabError, match="cannot be traced"):
                await crosspoint.recommend(Request(IRIS, effort=effort))
        assert not crosspoint.lab.waiting

    with_crosspoint(tmp_path, use, words)


def test_a_result_that_is_none_is_an_error_and_not_a_crash(tmp_path: Path) -> None:
    words = serving('say(event="result", job=job["job"], result={"measurements": [{"plan": 1}], "points": 3})')

    async def use(crosspoint: Crosspoint) -> None:
        for call in (crosspoint.trace(IRIS), crosspoint.measure(QUICK, seconds=1), crosspoint.calibrate("quick")):
            with pytest.raises(LabError, match="could not be read"):
                await call

    with_crosspoint(tmp_path, use, words)


def test_plans_are_measured_as_they_are_for_a_recommendation(tmp_path: Path) -> None:
    """They are told alike, and the latest counts."""
    heard = tmp_path / "jobs"
    words = serving(
        "told = [job['apart'], sys.argv[1:], job['gradient_bytes'], job['optimizer_bytes']]",
        f"print(json.dumps(told), file=open({str(heard)!r}, 'a'))",
        'say(event="result", job=job["job"], result={"measurements": []})',
    )

    async def use(crosspoint: Crosspoint) -> None:
        survey = await crosspoint.survey()
        version = survey.software.torch.version if survey.software.torch else None
        await crosspoint.store.keep_trace(IRIS, version or "unknown", a_profile().networks[0].trace)
        untraced = replace(QUICK, workload=replace(IRIS, mode="inference"))
        for request in (QUICK, untraced):
            await crosspoint.measure(request, seconds=5, plans=[ONE], batch_sizes=[4, 8])

    with_crosspoint(tmp_path, use, words)
    told = map(json.loads, heard.read_text(encoding="utf-8").splitlines())
    (apart, options, *trained), (shared, other_options, *unknown) = told
    assert apart
    assert not shared
    assert options[0] == other_options[0] == "--forks"
    trace = a_profile().networks[0].trace
    assert trained == [trace.gradient_bytes, trace.optimizer_bytes]
    assert unknown == [None, None]


def test_what_a_process_could_not_use_for_a_moment_is_told_and_not_kept(tmp_path: Path) -> None:
    """The quota that it met, or the card that it missed, may come back, and the machine's fingerprint with it."""
    crowd, never = Plan("cpu", "fp32", 9999), Plan("cpu", "tf32", 1)

    async def use(crosspoint: Crosspoint) -> None:
        told = await crosspoint.measure(QUICK, seconds=1, plans=[ONE, crowd, never])
        assert {(row.plan.label, row.outcome, row.momentary) for row in told} == {
            (ONE.label, "ok", False),
            (crowd.label, "unsupported", True),
            (never.label, "unsupported", False),
        }
        survey = await crosspoint.survey()
        kept = await crosspoint.store.measurements(survey.fingerprint, IRIS)
        assert {row.plan.label for row in kept} == {ONE.label, never.label}

    with_crosspoint(tmp_path, use)


def test_a_plan_measured_is_the_plan_asked_for(tmp_path: Path) -> None:
    words = serving('say(event="result", job=job["job"], result={"measurements": [], "asked": job})')

    async def use(crosspoint: Crosspoint) -> None:
        assert await crosspoint.measure(QUICK, seconds=1, plans=[Plan("cpu", "bf16", 1)], batch_sizes=[4]) == []
        with pytest.raises(InvalidRequest):
            await crosspoint.measure(replace(QUICK, devices=("cuda:9",)), seconds=1)
        assert not crosspoint.lab.waiting

    with_crosspoint(tmp_path, use, words)


def test_what_cannot_run_here_is_refused_before_a_process_is_started(tmp_path: Path) -> None:
    async def use(crosspoint: Crosspoint) -> None:
        for request in (Request(SUMMARY), Request(IRIS, devices=("cuda:63",))):
            with pytest.raises(InvalidRequest):
                await crosspoint.measure(request, seconds=1)
        with pytest.raises(InvalidRequest, match="not here"):
            await crosspoint.experiment("iris", epochs=1, log_every=[None], devices=["cpu", "cuda:63"])
        assert not crosspoint.lab.waiting

    with_crosspoint(tmp_path, use, ("/no/such/program",))


def test_an_experiment_runs_on_each_device_that_was_asked_for_once(tmp_path: Path) -> None:
    words = serving('say(event="result", job=job["job"], result={"devices": job["devices"]})')
    gpus = [a_gpu(id=f"GPU-{number}", torch_device=f"cuda:{number}") for number in range(2)]

    async def survey() -> Survey:
        return a_survey(gpus=gpus)

    async def use(crosspoint: Crosspoint) -> None:
        crosspoint.survey_tried_twice = survey  # type: ignore[method-assign]
        for asked, run in (
            (["cuda"], ["cuda:0", "cuda:1"]),
            (["cpu", "cpu", "cuda:1"], ["cpu", "cuda:1"]),
            ([], []),
        ):
            result = await crosspoint.experiment("iris", epochs=1, log_every=[None], devices=asked)
            assert result == {"devices": run}

    with_crosspoint(tmp_path, use, words)


def test_a_profile_that_is_not_stored_is_named_beside_those_that_are(tmp_path: Path) -> None:
    async def use(crosspoint: Crosspoint) -> None:
        with pytest.raises(UnknownProfile, match="None is stored"):
            await crosspoint.recommend(Request(IRIS, profile="there"))
        await crosspoint.store.keep_profile(PROFILE)
        with pytest.raises(UnknownProfile) as caught:
            await crosspoint.recommend(Request(IRIS, profile="there"))
        assert caught.value.suggestions == ("here",)

    with_crosspoint(tmp_path, use)


def test_a_machine_that_could_not_be_surveyed_is_not_calibrated(tmp_path: Path) -> None:
    """Nobody could tell whose profile it would be."""

    async def use(crosspoint: Crosspoint) -> None:
        survey = await crosspoint.survey()

        async def failed(*, fresh: bool = False) -> Survey:
            return replace(survey, fingerprint="")

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(crosspoint, "survey", failed)
            with pytest.raises(LabError, match="survey failed"):
                await crosspoint.calibrate("quick")
        assert await crosspoint.store.profile_heads() == []

    with_crosspoint(tmp_path, use, calibrating(tmp_path))


def test_a_summary_is_answered_without_any_process(tmp_path: Path) -> None:
    async def use(crosspoint: Crosspoint) -> None:
        answer = await crosspoint.recommend(Request(SUMMARY, effort="quick"))
        assert answer.options
        assert any(reason.code == "not-measured" for reason in answer.reasons)

    with_crosspoint(tmp_path, use, ("/no/such/program",))


def test_a_survey_is_taken_again_when_it_is_old_or_asked_for_anew(tmp_path: Path) -> None:
    async def use(crosspoint: Crosspoint) -> tuple[Survey, Survey, Survey]:
        first, second = await asyncio.gather(crosspoint.survey(), crosspoint.survey())
        return first, second, await crosspoint.survey(fresh=True)

    first, second, third = with_crosspoint(tmp_path, use)
    assert first is second
    assert third is not first
    assert third.fingerprint == first.fingerprint


def test_a_survey_that_never_ends_is_a_finding_and_not_a_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = threading.Event()
    monkeypatch.setattr("app.surveyor.PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr("probes.survey.take_survey", lambda *_, **__: held.wait())

    async def use() -> Survey:
        async with Crosspoint(Settings(data_dir=tmp_path, survey_seconds=0.1)) as crosspoint:
            return await crosspoint.survey()

    survey = asyncio.run(use())
    held.set()
    assert [finding.code for finding in survey.findings] == ["no-survey"]
    assert survey.cpu.name is None


def test_a_captured_machine_is_read_and_never_measured(tmp_path: Path) -> None:
    async def use() -> None:
        settings = Settings(data_dir=tmp_path / "data", sysroot=tmp_path)
        async with Crosspoint(settings, Lab(settings, ("/no/such/program",))) as crosspoint:
            experiment = crosspoint.experiment("iris", epochs=1, log_every=(None,), devices=("cuda:0",))
            for call in (crosspoint.measure(QUICK, seconds=1), crosspoint.calibrate("quick"), experiment):
                with pytest.raises(InvalidRequest, match="captured machine"):
                    await call

    asyncio.run(use())


def test_another_machines_devices_are_not_looked_for_here(tmp_path: Path) -> None:
    plan = Plan("cuda:63", "fp32")
    calibrated = a_profile(fingerprint="another")
    points = tuple(replace(point, plan=plan) for point in calibrated.points)
    there = replace(calibrated, name="gpu-node", points=points, networks=())

    async def use(crosspoint: Crosspoint) -> None:
        await crosspoint.store.keep_profile(there)
        for effort in ("instant", "quick"):
            request = Request(IRIS, devices=("cuda:63",), profile="gpu-node", effort=effort)
            answer = await crosspoint.recommend(request)
            assert {option.plan.device for option in answer.options} == {"cuda:63"}

    with_crosspoint(tmp_path, use)


def test_what_was_measured_on_the_machine_of_a_profile_counts_where_this_store_keeps_it(tmp_path: Path) -> None:
    """Of a node with the same home folder, or of this machine before it changed."""
    question = Request(IRIS, profile="rig", effort="quick")

    async def use(crosspoint: Crosspoint) -> None:
        def told(answer: Recommendation, code: str) -> str:
            (reason,) = [reason for reason in answer.reasons if reason.code == code]
            return reason.text

        await crosspoint.store.keep_profile(replace(a_profile((ONE, TWO), "another"), name="rig"))
        before = await crosspoint.recommend(question)
        assert {option.basis for option in before.options} == {"predicted"}
        assert "No step of this model that these plans took there is known." in told(before, "other-machine")
        assert "another machine's" in told(before, "not-measured")

        await crosspoint.store.keep_measurements("another", IRIS, [a_measurement(TWO, IRIS.batch_size, 0.5)])
        await crosspoint.store.keep_survey(replace(await crosspoint.survey(), fingerprint="another"))
        after = await crosspoint.recommend(question)
        (measured,) = [option for option in after.options if option.basis == "measured"]
        assert measured.plan == TWO
        assert measured.step_seconds is not None
        assert measured.step_seconds.median == pytest.approx(0.5)
        assert "What steps of this model took there counts." in told(after, "other-machine")
        assert "this machine's from before it changed" in told(after, "not-measured")

    with_crosspoint(tmp_path, use)


def test_who_has_waited_long_enough_for_the_machine_gets_an_estimate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.answering.recommending.LEAST_PATIENCE_SECONDS", 0.2)

    async def use(crosspoint: Crosspoint) -> None:
        held = crosspoint.lab.reserve(600)
        answer = await crosspoint.recommend(replace(QUICK, time_limit_seconds=0.1))
        (reason,) = [reason for reason in answer.reasons if reason.code == "not-measured"]
        assert "busy measuring" in reason.text
        assert answer.options
        assert crosspoint.lab.waiting == 1
        crosspoint.lab.release(held)
        assert measured_plans(await crosspoint.recommend(QUICK))

    with_crosspoint(tmp_path, use)


GRU = Workload(parse_model({"layers": [{"type": "gru", "hidden": 8, "output": "last"}], "input_shape": [30, 4]}), 16)


def test_a_step_is_traced_as_a_device_runs_it_where_a_plan_is_a_devices(tmp_path: Path) -> None:
    """Also of another machine's profile: there is no device here to ask for it."""

    async def use(crosspoint: Crosspoint) -> None:
        survey = await crosspoint.survey()
        await crosspoint.recommend(Request(GRU))
        assert await crosspoint.known_trace(survey, GRU) is not None
        assert await crosspoint.known_trace(survey, GRU, devices=True) is None
        await crosspoint.store.keep_profile(replace(a_profile((ONE, GPU), "elsewhere"), name="gpu-node"))
        await crosspoint.recommend(Request(GRU, profile="gpu-node"))
        trace = await crosspoint.known_trace(survey, GRU, devices=True)
        assert trace is not None
        assert trace.on(cpu=False).operation_count() < 0.5 * trace.operation_count()
        await crosspoint.recommend(Request(GRU))
        assert await crosspoint.known_trace(survey, GRU, devices=True) is trace  # nobody traces it again without

    with_crosspoint(tmp_path, use)
