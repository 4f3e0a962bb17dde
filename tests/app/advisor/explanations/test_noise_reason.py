"""Whether the machine is said to have been busy is judged by what was measured there, on every kind of device."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.advisor import Request, recommend
from app.advisor.recommendation import Reason
from probes.hardware import Load
from probes.workload.description import Plan
from tests.app.advisor.build import ONE, TWO, a_gpu, a_measurement, a_survey, a_workload
from tests.app.advisor.machine import GPU, a_profile


def noise_of(plan: Plan, spread: float) -> Reason | None:
    survey = a_survey(gpus=[a_gpu()])
    found = recommend(survey, None, None, [a_measurement(plan, 16, 1.0, spread)], Request(a_workload()))
    assert found.recommended == plan
    return next((reason for reason in found.reasons if reason.code == "noise"), None)


@pytest.mark.parametrize("plan", [ONE, TWO, GPU])
def test_a_calm_measurement_is_not_called_noisy_for_what_another_process_would_differ_by(plan: Plan) -> None:
    assert noise_of(plan, 0.01) is None


@pytest.mark.parametrize("plan", [ONE, TWO, GPU])
def test_samples_far_apart_are_told_with_where_the_median_lies(plan: Plan) -> None:
    reason = noise_of(plan, 0.6)
    assert reason is not None
    assert 0.25 < reason.evidence["relative_spread"] < 1.2
    assert "busy or unsteady" in reason.text


@pytest.mark.parametrize(
    ("figure", "of_cpu", "of_card"),
    [("device_busy_fraction", False, True), ("slow_fraction", True, False), ("steal_fraction", True, True)],
)
def test_a_calibration_is_called_noisy_for_what_the_plans_that_are_predicted_met(
    figure: str, of_cpu: bool, of_card: bool
) -> None:
    profile = replace(a_profile((ONE, TWO, GPU)), noise={figure: 0.9})
    for devices, is_told in ((("cpu",), of_cpu), (("cuda:0",), of_card), (("cpu", "cuda:0"), True)):
        request = Request(a_workload(), "fp32", devices)
        found = recommend(a_survey(gpus=[a_gpu()]), profile, None, [], request)
        assert {option.basis for option in found.options} == {"predicted"}
        told = [reason.evidence for reason in found.reasons if reason.code == "noisy-profile"]
        assert told == ([{"spread": None, figure: 0.9}] if is_told else [])


@pytest.mark.parametrize(
    ("fingerprint", "said"), [("f", "Calibrate again when"), ("e", "Calibrate that machine again")]
)
def test_slow_cores_are_told_in_plain_words_and_the_machine_that_met_them_is_to_be_calibrated(
    fingerprint: str, said: str
) -> None:
    profile = replace(a_profile((ONE,), fingerprint), noise={"slow_fraction": 0.32})
    found = recommend(a_survey(), profile, None, [], Request(a_workload(), "fp32", profile="made-up"))
    (reason,) = [reason for reason in found.reasons if reason.code == "noisy-profile"]
    assert "32 % of its times were taken on slow cores alone, as beside" in reason.text
    assert said in reason.text


def test_what_was_measured_calmly_is_not_called_noisy_for_who_came_later() -> None:
    survey = replace(a_survey(), load=Load(busy_fraction=1.0, steal_fraction=0.0))
    found = recommend(survey, None, None, [a_measurement(ONE, 16, 1.0, others_cores=0.0)], Request(a_workload()))
    assert found.options[0].crowded
    assert "noise" not in {reason.code for reason in found.reasons}
