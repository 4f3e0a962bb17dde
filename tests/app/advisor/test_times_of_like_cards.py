"""What a step took on one of several cards that are alike the others take, until they ran themselves."""

from __future__ import annotations

import pytest

from app.advisor import Request, recommend
from app.advisor.recommendation import Basis, Interval
from app.advisor.summary import trace_of_summary
from app.advisor.time_model.intervals import deviation
from app.advisor.time_model.step_time import times_of_plans
from probes.hardware import Survey
from probes.measurement import Measurement, MemoryPeak
from probes.workload.description import Plan
from tests.app.advisor.build import GB, ONE, TWO, a_measurement, a_survey, a_workload
from tests.app.advisor.machine import GPU
from tests.app.advisor.test_like_cards import PROFILE, SECOND, gpus, slower_than_told, with_found

FULL = a_survey(gpus=gpus({"memory_free_bytes": GB}, {}))
BUSY = a_survey(gpus=gpus({"utilization_percent": 90.0}, {"utilization_percent": 0.0}))
SICK = with_found(("gpu-throttled-by-heat", "cuda:0"), busy=0.0)


@pytest.mark.parametrize("survey", [FULL, BUSY, SICK], ids=["full", "busy", "sick"])
def test_where_nobody_calibrated_the_free_card_is_recommended_by_what_its_twin_took(survey: Survey) -> None:
    """A step on the CPU takes sixty times as long."""
    took = MemoryPeak(allocated_bytes=8 * GB, reserved_bytes=8 * GB)
    rows = [a_measurement(GPU, 16, 0.03, memory=took), a_measurement(ONE, 16, 2.0), a_measurement(TWO, 16, 2.1)]
    found = recommend(survey, None, None, rows, Request(a_workload(16), "fp32"))
    assert found.recommended == SECOND
    assert found.confidence == 1.0
    told = {option.plan.device: option for option in found.options}["cuda:1"]
    assert (told.basis, told.samples_per_second) == ("probed", pytest.approx(16 / 0.03))


def test_what_a_card_may_differ_by_from_its_twin_is_between_it_and_what_ran_beside_that() -> None:
    """Plans of one run share what processes differ by, and not what this card may."""
    took = MemoryPeak(allocated_bytes=8 * GB, reserved_bytes=8 * GB)
    rows = [a_measurement(GPU, 16, 0.1, memory=took), a_measurement(ONE, 16, 0.2), a_measurement(TWO, 16, 0.106)]
    found = recommend(FULL, None, None, rows, Request(a_workload(16), "fp32"))
    assert found.recommended == SECOND
    assert found.confidence is not None
    assert 0.7 < found.confidence < 0.9


def seconds_of(plan: Plan, *rows: Measurement, batch_size: int = 16) -> tuple[Basis | None, Interval | None]:
    survey = a_survey(gpus=gpus({}, {}))
    found = recommend(survey, None, None, rows, Request(a_workload(batch_size), "fp32", ("cuda",)))
    (option,) = (option for option in found.options if option.plan == plan)
    return option.basis, option.step_seconds


def test_what_a_card_took_itself_is_told_of_it_and_what_its_twin_took_where_it_did_not_run() -> None:
    """However old its own is."""
    own = a_measurement(SECOND, 16, 0.05, measured_at=1e9)
    twin = [a_measurement(GPU, size, size / 500, measured_at=2e9) for size in (16, 64)]
    between = 0.05 + (32 - 16) / (64 - 16) * (64 / 500 - 0.05)
    for size, known, median in ((16, "measured", 0.05), (64, "probed", 64 / 500), (32, "probed", between)):
        basis, seconds = seconds_of(SECOND, own, *twin, batch_size=size)
        assert seconds is not None
        assert (basis, seconds.median) == (known, pytest.approx(median))


def test_what_its_twin_took_fed_otherwise_does_not_take_the_place_of_its_own() -> None:
    own = a_measurement(SECOND, 16, 0.05, data="resident")
    twin = [a_measurement(GPU, size, size / 500) for size in (16, 64)]
    resident = Request(a_workload(16, data="resident"), "fp32", ("cuda",))
    found = recommend(a_survey(gpus=gpus({}, {})), None, None, [own, *twin], resident)
    (option,) = (option for option in found.options if option.plan == SECOND)
    assert (option.basis, option.samples_per_second) == ("measured", pytest.approx(16 / 0.05))


def test_what_its_twin_took_beside_others_is_not_told_of_a_card() -> None:
    assert seconds_of(SECOND, a_measurement(GPU, 16, 0.05, device_busy_fraction=0.9)) == (None, None)


def test_of_its_twin_s_time_less_is_known_than_of_its_own() -> None:
    row = a_measurement(GPU, 16, 0.05)
    own, twin = (seconds_of(plan, row)[1] for plan in (GPU, SECOND))
    assert own is not None
    assert twin is not None
    assert deviation(twin) > 1.2 * deviation(own)


def test_of_several_cards_that_are_alike_one_step_corrects_predictions_once() -> None:
    workload, rows, kinds = a_workload(16), [slower_than_told()], dict.fromkeys(("cuda:0", "cuda:1"), "alike")
    trace = trace_of_summary(workload)
    one, both = (
        times_of_plans(plans, PROFILE, trace, rows, workload, kinds=kinds)[GPU.key].correction.log_ratio
        for plans in ((GPU,), (GPU, SECOND))
    )
    assert one == both > 0
