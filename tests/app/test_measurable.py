"""What is no measurement is refused before it starts, and a job that measured nothing has failed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.advisor.request import InvalidRequest, Request
from app.errors import LabError
from app.measurable import check_measurable, check_outcome, with_threads
from probes.measurement import Measurement
from probes.workload.description import Plan, Workload
from probes.workload.models import parse_model
from tests.app.advisor.build import a_gpu, a_summary, a_survey

IRIS = Workload(parse_model("iris-mlp"), 8)
SURVEY = a_survey(gpus=[a_gpu()])
OK = Measurement(Plan("cpu"), 8, "pageable", "ok")
FAILED = replace(OK, outcome="failed", reason="It did not work.")
TOO_LARGE = replace(OK, outcome="out-of-memory", reason="It needs 9 GB.")


@pytest.mark.parametrize("plan", [Plan("cpu", "bf16", 1), Plan("cpu"), Plan("cuda:0", "fp16")])
def test_a_plan_that_this_machine_has_may_be_measured(plan: Plan) -> None:
    check_measurable(SURVEY, Request(IRIS), [plan])


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (Plan("meta"), "not here.*Devices here: cpu.*, cuda:0"),
        (Plan("cuda:3"), "not here.*Devices here: cpu.*, cuda:0"),
        (Plan("cuda"), "not here.*Devices here: cpu.*, cuda:0"),
        (Plan("cpu", "tf32"), "It has fp32, bf16"),
        (Plan("cpu", "fp32", 4000), "threads"),
        (Plan("cpu", "fp32", 0), "threads"),
        (Plan("cuda:0", "fp32", 2), "has no threads"),
    ],
)
def test_a_plan_that_it_has_not_is_refused(plan: Plan, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        check_measurable(SURVEY, Request(IRIS), [Plan("cpu"), plan])


@pytest.mark.parametrize("choices", [{"devices": ("cpu",)}, {"precision": "fp32"}, {"devices": ("cuda",)}])
def test_a_plan_that_devices_or_precision_leave_out_is_refused(choices: dict[str, Any]) -> None:
    plan = Plan("cpu", "bf16") if choices == {"devices": ("cuda",)} else Plan("cuda:0", "bf16")
    check_measurable(SURVEY, Request(IRIS, devices=(plan.device,), precision="bf16"), [plan])
    with pytest.raises(InvalidRequest, match=f"{plan.device} in bf16, which devices and precision leave out"):
        check_measurable(SURVEY, Request(IRIS, **choices), [plan])


def test_a_plan_without_threads_has_all_that_may_be_used() -> None:
    plans = (Plan("cpu"), Plan("cpu", "bf16", 1), Plan("cuda:0"))
    assert [plan.threads for plan in with_threads(SURVEY, plans)] == [2, 1, None]


def test_a_plan_on_a_card_that_torch_cannot_use_is_told_why() -> None:
    hidden = a_survey(gpus=[a_gpu(usable=False, why_not="torch was built without CUDA.", torch_device=None)])
    with pytest.raises(InvalidRequest, match="NVIDIA A10 cannot be trained on: torch was built without CUDA"):
        check_measurable(hidden, Request(IRIS), [Plan("cuda:0")])


def test_a_job_without_a_measurement_says_the_first_reason() -> None:
    check_outcome([FAILED, OK])
    for rows, code in (([FAILED, TOO_LARGE], "failed"), ([TOO_LARGE] * 2, "out-of-memory")):
        with pytest.raises(LabError, match=str(rows[0].reason)) as caught:
            check_outcome(rows)
        assert caught.value.code == code
    with pytest.raises(LabError):
        check_outcome([])


def test_a_summary_cannot_be_measured() -> None:
    with pytest.raises(InvalidRequest, match="estimated, not measured"):
        check_measurable(SURVEY, Request(Workload(a_summary(), 8)))
