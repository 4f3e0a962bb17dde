"""A card that only torch can tell of: whoever is asked for plans asks torch first, from the command line, too."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.advisor.explanations.unknown_cards import explain_captured_cards
from app.advisor.request import InvalidRequest, Request
from app.errors import LabError
from app.service import Crosspoint
from app.upkeep import Upkeep
from probes import survey as surveys
from probes.hardware import Accelerator, Survey, Torch
from probes.workload.description import Workload
from probes.workload.models import parse_model
from tests.app.advisor.build import ONE, a_gpu, a_survey
from tests.app.advisor.machine import a_profile
from tests.app.lab.programs import program
from tests.app.opened import with_crosspoint

FIGURES = {"parameters": 10**6, "flops_per_sample": 10**9, "activation_bytes_per_sample": 10**6, "operations": 50}
SUMMARY = Workload(parse_model({"summary": FIGURES}), 8)
IRIS = Workload(parse_model("iris-mlp"), 8)
UNKNOWN = a_gpu(usable=None)
DEVICE = '{"device": "cuda:0", "uuid": "GPU-1", "capability": "8.6", "architectures": ["sm_80"], "why_not": None}'
ROCM_DEVICE = '{"device": "cuda:0", "gfx_target": "gfx1100", "why_not": None}'
NOT_RUN = 'say(event="failed", job=job["job"], code="failed", reason="Not run in this test.")'


def seeing(*devices: str) -> tuple[str, ...]:
    ready = f'say(event="ready", torch="2.13.0", python="3", cuda_version="13.0", devices=[{", ".join(devices)}])'
    return program(ready, "for line in sys.stdin:", "    job = json.loads(line)", f"    {NOT_RUN}")


@pytest.fixture(autouse=True)
def card(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """This machine, and a card whose driver and CUDA are there, and of which only torch can tell more."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    take = surveys.take_survey
    cards: tuple[Accelerator, ...] = (UNKNOWN,)

    def with_card(*arguments: Any, **named: Any) -> Survey:
        return replace(take(*arguments, **named), accelerators=cards)

    monkeypatch.setattr("probes.survey.take_survey", with_card)


def devices_of(survey: Survey) -> list[tuple[str | None, bool | None]]:
    return [(card.torch_device, card.usable) for card in survey.accelerators]


def test_a_captured_machines_card_is_told_with_why_there_is_no_plan_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use(crosspoint: Crosspoint) -> None:
        answer = await crosspoint.recommend(Request(SUMMARY))
        (told,) = (reason for reason in answer.reasons if reason.code == "unknown-device")
        assert told.evidence == {"cards": ["NVIDIA A10"]}
        assert "captured machine does not tell" in told.text

    monkeypatch.setattr(Crosspoint, "is_here", False)
    with_crosspoint(tmp_path, use)


def test_of_a_captured_machines_cards_those_are_told_that_torch_might_use() -> None:
    processors_own = a_gpu(name="Intel UHD Graphics 770", vendor="Intel", usable=None)
    assert explain_captured_cards(a_survey(gpus=(processors_own,))) is None
    told = explain_captured_cards(a_survey(gpus=(processors_own, UNKNOWN, UNKNOWN)))
    assert told is not None
    assert "NVIDIA A10 and NVIDIA A10, so there is no plan for any of them" in told.text


def test_torch_is_asked_before_there_are_plans(tmp_path: Path) -> None:
    """By the real measuring process, but for the card that it says it sees."""

    async def use(crosspoint: Crosspoint) -> None:
        ready = crosspoint.lab.ready

        async def with_device() -> dict[str, Any]:
            return {**await ready(), "devices": [{"device": "cuda:0", "uuid": "GPU-1", "capability": "8.6"}]}

        crosspoint.lab.ready = with_device  # type: ignore[method-assign]
        assert devices_of(await crosspoint.survey()) == [("cuda:0", None)]
        heard: list[str] = []
        answer = await crosspoint.recommend(Request(IRIS), lambda _, message: heard.append(message))
        assert heard[0] == "asking torch which cards it can use"
        assert {option.plan.device for option in answer.options} == {"cpu", "cuda:0"}
        assert not [reason for reason in answer.reasons if reason.code == "unknown-device"]
        assert devices_of(await crosspoint.survey()) == [("cuda:0", True)]

    with_crosspoint(tmp_path, use)


def test_what_is_asked_for_by_name_is_there(tmp_path: Path) -> None:
    async def use(crosspoint: Crosspoint) -> None:
        with pytest.raises(LabError, match=r"Not run in this test"):
            await crosspoint.measure(Request(IRIS, devices=("cuda",)), seconds=1.0)

    with_crosspoint(tmp_path, use, seeing(DEVICE))


def test_a_card_that_torch_does_not_see_is_no_plan(tmp_path: Path) -> None:
    async def use(crosspoint: Crosspoint) -> None:
        survey = await crosspoint.survey_for_plans()
        assert devices_of(survey) == [(None, False)]
        with pytest.raises(InvalidRequest, match=r"torch does not list it"):
            await crosspoint.measure(Request(IRIS, devices=("cuda",)), seconds=1.0)

    with_crosspoint(tmp_path, use, seeing())


@pytest.fixture
def rocm(monkeypatch: pytest.MonkeyPatch) -> None:
    """No card is seen, and torch is built for ROCm, as under WSL."""
    take = surveys.take_survey

    def without_card(*arguments: Any, **named: Any) -> Survey:
        survey = take(*arguments, **named)
        torch = Torch("2.13.0+rocm7.0", hip_version="7.0")
        return replace(survey, accelerators=(), software=replace(survey.software, torch=torch))

    monkeypatch.setattr("probes.survey.take_survey", without_card)


@pytest.mark.usefixtures("rocm")
@pytest.mark.parametrize("devices", [(ROCM_DEVICE,), ()], ids=["under WSL", "no card"])
def test_a_torch_for_rocm_is_asked_once_though_no_card_is_seen(tmp_path: Path, devices: tuple[str, ...]) -> None:
    async def use(crosspoint: Crosspoint) -> None:
        heard: list[str] = []
        for _ in range(2):
            survey = await crosspoint.survey_for_plans(lambda _, message: heard.append(message))
            assert devices_of(survey) == [("cuda:0", True)] * len(devices)
        assert len(heard) == 1

    with_crosspoint(tmp_path, use, seeing(*devices))


@pytest.mark.usefixtures("rocm")
def test_a_torch_for_rocm_that_does_not_start_leaves_its_cards_unknown(tmp_path: Path) -> None:
    """The answer says so, and nobody calibrates by himself without them."""

    async def use(crosspoint: Crosspoint) -> None:
        answer = await crosspoint.recommend(Request(SUMMARY))
        (told,) = (reason for reason in answer.reasons if reason.code == "unknown-device")
        assert "Which cards torch for ROCm shows" in told.text
        assert "exit code 3" in told.text
        assert told.evidence == {"cards": []}
        with pytest.raises(InvalidRequest, match=r"shows is not known yet"):
            await crosspoint.recommend(Request(SUMMARY, devices=("cuda",)))
        with pytest.raises(LabError, match=r"What torch sees is not known"):
            Upkeep(crosspoint)._check_calibratable(await crosspoint.survey())

    with_crosspoint(tmp_path, use, program("sys.exit(3)"))


def test_what_no_card_here_matters_to_waits_for_no_torch(tmp_path: Path) -> None:
    """A plan for the CPU, or for another machine by its profile."""
    starts = tmp_path / "starts"
    dying = program(f"open({str(starts)!r}, 'a').write('x')", "sys.exit(3)")

    async def use(crosspoint: Crosspoint) -> None:
        other = a_profile((ONE,))
        await crosspoint.store.keep_profile(other, other)
        for request in (Request(SUMMARY, devices=("cpu",)), Request(SUMMARY, profile=other.name)):
            answer = await crosspoint.recommend(request)
            assert not [reason for reason in answer.reasons if reason.code == "unknown-device"]

    with_crosspoint(tmp_path, use, dying)
    assert not starts.exists()


def test_requests_at_once_wait_for_one_start_of_torch(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    dying = program(f"open({str(starts)!r}, 'a').write('x')", "sys.exit(3)")

    async def use(crosspoint: Crosspoint) -> None:
        surveys = await asyncio.gather(*(crosspoint.survey_for_plans() for _ in range(8)))
        assert [devices_of(survey) for survey in surveys] == [[("cuda:0", None)]] * 8

    with_crosspoint(tmp_path, use, dying)
    assert starts.read_text() == "x"


def test_torch_that_does_not_start_is_told_and_not_waited_for_again(tmp_path: Path) -> None:
    """Its summary can be answered for all the same, on what is known."""
    starts = tmp_path / "starts"
    dying = program(f"open({str(starts)!r}, 'a').write('x')", "sys.exit(3)")

    async def use(crosspoint: Crosspoint) -> None:
        for _ in range(3):
            answer = await crosspoint.recommend(Request(SUMMARY))
            assert {option.plan.device for option in answer.options} == {"cpu"}
            (told,) = (reason for reason in answer.reasons if reason.code == "unknown-device")
            assert "NVIDIA A10" in told.text
            assert "exit code 3" in told.text
            assert told.evidence == {"cards": ["NVIDIA A10"]}
        with pytest.raises(InvalidRequest, match=r"not known yet"):
            await crosspoint.recommend(Request(SUMMARY, devices=("cuda",)))

    with_crosspoint(tmp_path, use, dying)
    assert starts.read_text() == "x"
