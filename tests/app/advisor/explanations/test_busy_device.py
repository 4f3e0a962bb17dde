"""Who computes on a card is part of the answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.advisor import Request, recommend
from app.advisor.explanations.busy_device import explain_busy_device, without_utilization
from app.advisor.explanations.noise_signs import is_disturbed, signs_of_noise
from app.advisor.recommendation import Basis, Breakdown, Interval, MemoryParts, Option
from app.advisor.summary import trace_of_summary
from app.advisor.time_model.pooled import pool
from app.advisor.time_model.step_time import times_of_plans
from probes.measurement import Measurement
from probes.profile import Profile
from probes.workload.description import Plan
from tests.app.advisor.build import ONE, a_gpu, a_measurement, a_survey, a_workload
from tests.app.advisor.machine import GPU, a_profile


def an_option(plan: Plan, basis: Basis | None) -> Option:
    seconds = None if basis is None else Interval(0.1, 0.09, 0.11)
    return Option(plan, True, None, basis, seconds, None, Breakdown(), MemoryParts(), None)


def explain(
    percent: float | None,
    best: Plan | None = GPU,
    basis: Basis | None = "predicted",
    row: Measurement | None = None,
) -> str | None:
    options = [an_option(GPU, basis), an_option(ONE, "predicted")]
    survey = a_survey(gpus=[a_gpu(utilization_percent=percent)])
    found = explain_busy_device(survey, options, best, row)
    return None if found is None else found.text


@pytest.mark.parametrize("percent", [None, 0.0, 24.0])
def test_a_card_that_is_free_or_shows_pictures_is_no_reason_for_anything(percent: float | None) -> None:
    assert explain(percent) is None


def test_what_others_do_to_a_time_depends_on_whether_it_met_them() -> None:
    assert "nobody else on it" in (explain(98.0) or "")
    assert "98 %" in (explain(98.0) or "")


@pytest.mark.parametrize("basis", ["measured", "probed", "predicted"])
@pytest.mark.parametrize(
    ("busy_then", "told"),
    [(0.97, "measured beside others, and contains"), (0.0, "nobody else on it"), (None, "measured, and contains")],
)
def test_at_whatever_batch_a_time_contains_what_the_measurement_met_that_it_rests_on(
    basis: Basis, busy_then: float | None, told: str
) -> None:
    row = a_measurement(GPU, 16, 0.2, device_busy_fraction=busy_then)
    assert told in (explain(98.0, GPU, basis, row) or "")


@pytest.mark.parametrize(("batch_size", "basis"), [(16, "measured"), (32, "probed"), (64, "predicted")])
def test_an_answer_says_so_of_other_batches_too(batch_size: int, basis: Basis) -> None:
    rows = [a_measurement(GPU, 16, 0.2, device_busy_fraction=0.97)]
    survey = a_survey(gpus=[a_gpu(utilization_percent=98.0)])
    request = Request(a_workload(batch_size), "fp32", ("cuda",))
    found = recommend(survey, a_profile((ONE, GPU)), None, rows, request)
    assert [option.basis for option in found.options] == [basis]
    (reason,) = (reason for reason in found.reasons if reason.code == "busy-device")
    assert "beside others, and contains" in reason.text


def test_of_a_card_that_is_not_recommended_only_the_missing_calibration_is_told() -> None:
    assert explain(98.0, ONE) is None
    assert "not calibrated meanwhile" in (explain(98.0, ONE, None) or "")


def test_a_card_that_is_too_small_has_no_times_for_that_alone() -> None:
    options = [replace(an_option(GPU, None), fits=False), an_option(ONE, "predicted")]
    survey = a_survey(gpus=[a_gpu(utilization_percent=98.0)])
    assert explain_busy_device(survey, options, ONE, None) is None


def test_a_time_that_was_measured_beside_others_says_so_when_they_have_left() -> None:
    shared = a_measurement(GPU, 16, 0.2, device_busy_fraction=0.97)
    assert shared.met_others
    assert "do no more" in (explain(0.0, GPU, "measured", shared) or "")
    assert explain(None, GPU, "measured", shared) is None, "whether they left is not known"
    assert explain(0.0, GPU, "measured", a_measurement(GPU, 16, 0.2, device_busy_fraction=0.1)) is None


@pytest.mark.parametrize(("percent", "told"), [(0.0, 0.1), (98.0, 0.2), (None, 0.2)])
def test_the_time_of_the_free_card_is_told_again_once_the_others_have_left(percent: float | None, told: float) -> None:
    rows = [a_measurement(GPU, 16, seconds, device_busy_fraction=busy) for seconds, busy in ((0.1, 0.0), (0.2, 0.97))]
    survey = a_survey(gpus=[a_gpu(utilization_percent=percent)])
    found = recommend(survey, None, None, rows, Request(a_workload(16), "fp32", ("cuda",)))
    (option,) = found.options
    assert option.step_seconds is not None
    assert option.step_seconds.median == pytest.approx(told)
    assert ("busy-device" in {reason.code for reason in found.reasons}) == (percent == 98.0)


@pytest.mark.parametrize(("busy", "told"), [(0.0, False), (0.97, True)])
def test_only_what_the_time_rests_on_is_said_to_have_met_others(busy: float, *, told: bool) -> None:
    """Measured again alone it is the time of the free card, whatever ran at other batches, or did not."""
    refused = Measurement(GPU, 4096, "pageable", "out-of-memory", "Too large.", device_busy_fraction=0.97)
    rows = [a_measurement(GPU, size, size / 100, device_busy_fraction=0.97) for size in (4, 64)]
    rows += [refused, a_measurement(GPU, 16, 0.1, device_busy_fraction=busy)]
    survey = a_survey(gpus=[a_gpu(utilization_percent=0.0)])
    found = recommend(survey, None, None, rows, Request(a_workload(16), "fp32", ("cuda",)))
    assert ("busy-device" in {reason.code for reason in found.reasons}) == told


def test_what_may_be_a_measurement_of_ours_is_not_told() -> None:
    survey = without_utilization(a_survey(gpus=[a_gpu(utilization_percent=98.0)]))
    assert survey.accelerators[0].utilization_percent is None


def test_a_shared_step_corrects_no_prediction() -> None:
    workload = a_workload(16)
    trace = trace_of_summary(workload)

    def correction(share: float) -> float:
        rows = [a_measurement(GPU, 16, 30.0, device_busy_fraction=share)]
        (time,) = times_of_plans([GPU], a_profile((ONE, GPU)), trace, rows, workload).values()
        return time.correction.log_ratio

    assert correction(0.0) > 0
    assert correction(0.9) == 0


def disturbed(share: float) -> Profile:
    return replace(a_profile((ONE, GPU)), noise={"device_busy_fraction": share})


def test_a_calibration_beside_others_on_a_card_is_disturbed_for_devices_alone() -> None:
    assert is_disturbed(disturbed(0.9), on_devices=True)
    assert not is_disturbed(disturbed(0.9))
    assert not is_disturbed(disturbed(0.1), on_devices=True)
    assert "90 %" in signs_of_noise(disturbed(0.9))["device_busy_fraction"]


def test_in_a_profile_a_calm_calibration_of_the_card_takes_its_place() -> None:
    pooled = pool([disturbed(0.9), disturbed(0.0)])
    assert pooled.noise["device_busy_fraction"] == 0.0
    assert not is_disturbed(pooled, on_devices=True)


def test_of_two_busy_cards_the_recommended_one_is_told() -> None:
    second = replace(GPU, device="cuda:1")
    cards = [a_gpu(utilization_percent=98.0), a_gpu(torch_device="cuda:1", utilization_percent=97.0)]
    options = [an_option(GPU, None), an_option(second, "predicted")]
    found = explain_busy_device(a_survey(gpus=cards), options, second, None)
    assert found is not None
    assert found.evidence["device"] == "cuda:1"
    assert "nobody else on it" in found.text
