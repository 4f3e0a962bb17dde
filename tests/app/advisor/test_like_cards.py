"""Cards that are alike are told alike, from the calibration of one of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.advisor import Recommendation, Request, recommend
from app.advisor.curves.over_batches import largest_worth_looking_at
from app.advisor.explanations.sick_device import sick_devices
from app.advisor.like_cards import (
    devices_to_calibrate,
    free_devices,
    kinds_elsewhere,
    like_devices,
    one_of_each_kind,
    same_kinds,
)
from app.advisor.plans import profiled_plans
from app.advisor.request import InvalidRequest
from app.advisor.time_model.pooled import pool
from app.advisor.time_model.predicted import model_of_plan
from probes.accelerator import subject_of
from probes.diagnose.codes import make_finding
from probes.hardware import Accelerator, Survey
from probes.measurement import Measurement, MemoryPeak
from probes.profile import Profile
from probes.workload.description import Plan
from tests.app.advisor.build import GB, ONE, a_gpu, a_measurement, a_summary, a_survey, a_workload
from tests.app.advisor.machine import GPU, a_profile

SECOND = Plan("cuda:1", "fp32")
PROFILE = replace(a_profile((ONE, GPU)), workspace_bytes={"cuda:0": 8_000_000}, like={"cuda:1": "cuda:0"})


def gpus(*changes: dict[str, object]) -> list[Accelerator]:
    return [
        a_gpu(**{"id": f"GPU-{place}", "torch_device": f"cuda:{place}", **each}) for place, each in enumerate(changes)
    ]


def answer(
    *rows: Measurement, first: float | None = None, second: float | None = None, first_free: int = 23 * GB
) -> Recommendation:
    """first, second: how busy others keep the two cards, in percent. first_free: bytes on the first."""
    one = {"utilization_percent": first, "memory_free_bytes": first_free}
    survey = a_survey(gpus=gpus(one, {"utilization_percent": second}))
    return recommend(survey, PROFILE, None, rows, Request(a_workload(16), "fp32", ("cuda",)))


@pytest.mark.parametrize(
    ("changes", "chosen"),
    [
        (({}, {}, {}), ["cpu", "cuda:0"]),
        (({}, {"name": "NVIDIA T400"}, {}), ["cpu", "cuda:0", "cuda:1"]),
        (({}, {"memory_total_bytes": 10**10}), ["cpu", "cuda:0", "cuda:1"]),
        (({"pcie_lanes": 16}, {"pcie_lanes": 4}), ["cpu", "cuda:0", "cuda:1"]),
        (({"utilization_percent": 90.0}, {"utilization_percent": 3.0}), ["cpu", "cuda:1"]),
        (({"utilization_percent": 90.0}, {"utilization_percent": 80.0}), ["cpu", "cuda:0"]),
        (({"memory_total_bytes": None}, {"memory_total_bytes": None}), ["cpu", "cuda:0", "cuda:1"]),
        (({"usable": False}, {}), ["cpu", "cuda:1"]),
        ((), ["cpu"]),
    ],
)
def test_of_each_kind_one_is_calibrated(changes: tuple[dict[str, object], ...], chosen: list[str]) -> None:
    assert devices_to_calibrate(a_survey(gpus=gpus(*changes))) == chosen


def test_a_card_on_which_others_compute_is_left_out() -> None:
    survey = a_survey(gpus=gpus({"utilization_percent": 98.0}, {"name": "NVIDIA T400", "utilization_percent": 0.0}))
    assert free_devices(survey) == ["cpu", "cuda:1"]


def with_found(*found: tuple[str, str], busy: float | None = None) -> Survey:
    """Two cards that are alike. found: a finding's code and its subject. busy: the second, by others, in percent."""
    survey = a_survey(gpus=gpus({"utilization_percent": 0.0}, {"utilization_percent": busy}))
    return replace(survey, findings=tuple(make_finding(code, subject, "It fails.", "") for code, subject in found))


@pytest.mark.parametrize(
    "code", ["gpu-memory-errors", "gpu-driver-errors", "gpu-throttled-by-heat", "gpu-throttled-by-power"]
)
def test_a_sick_card_comes_after_its_twin_that_is_well(code: str) -> None:
    survey = with_found((code, "cuda:0"), busy=0.0)
    assert devices_to_calibrate(survey) == ["cpu", "cuda:1"]
    assert like_devices(a_survey_of_three(survey), ("cuda:0", "cuda:1")) == {"cuda:2": "cuda:1"}
    assert one_of_each_kind(survey, (ONE, GPU, SECOND), ()) == [ONE, SECOND]
    found = recommend(survey, PROFILE, None, [], Request(a_workload(16), "fp32", ("cuda",)))
    assert [option.plan for option in found.options] == [SECOND, GPU]
    assert "sick-device" not in {reason.code for reason in found.reasons}


def a_survey_of_three(survey: Survey) -> Survey:
    third = replace(survey.accelerators[1], id="GPU-2", torch_device="cuda:2")
    return replace(survey, accelerators=(*survey.accelerators, third))


def test_a_sick_card_is_no_better_for_being_free() -> None:
    survey = with_found(("gpu-memory-errors", "cuda:0"), busy=98.0)
    assert devices_to_calibrate(survey) == ["cpu", "cuda:1"]
    assert free_devices(survey) == ["cpu"]


def test_where_the_recommended_card_is_sick_the_gravest_finding_is_told() -> None:
    survey = with_found(("gpu-throttled-by-heat", "cuda:1"), ("gpu-memory-errors", "cuda:0, cuda:1"), busy=0.0)
    found = recommend(survey, PROFILE, None, [], Request(a_workload(16), "fp32", ("cuda",)))
    (reason,) = (reason for reason in found.reasons if reason.code == "sick-device")
    assert reason.evidence == {"device": "cuda:0", "finding": "gpu-memory-errors"}
    assert "It fails." in reason.text


def test_a_part_of_a_sick_card_is_sick() -> None:
    whole = a_gpu(id="GPU-0", torch_device=None, name="NVIDIA H100")
    part = a_gpu(id="MIG-0", parent_id="GPU-0")
    survey = replace(with_found(("gpu-memory-errors", subject_of(whole))), accelerators=(whole, part))
    assert set(sick_devices(survey)) == {"cuda:0"}
    twin = replace(whole, id="GPU-1")  # which of the two is meant nobody can tell
    assert not sick_devices(replace(survey, accelerators=(whole, twin, part)))


def test_the_others_are_told_as_the_one_that_was_measured() -> None:
    survey = a_survey(gpus=gpus({}, {}, {"name": "NVIDIA T400"}, {}))
    assert like_devices(survey, ("cuda:1",)) == {"cuda:0": "cuda:1", "cuda:3": "cuda:1"}
    assert like_devices(survey, ("cuda:0", "cuda:1")) == {"cuda:3": "cuda:0"}
    assert like_devices(survey, ()) == {}


def test_two_of_a_kind_take_as_long_and_as_much_and_are_no_rivals() -> None:
    found = answer()
    first, second = found.options
    assert (first.plan, second.plan) == (GPU, SECOND)
    assert first.step_seconds == second.step_seconds
    assert first.memory == second.memory
    assert first.memory.overhead_bytes
    assert found.confidence == 1.0
    assert "too close" not in found.verdict
    assert not found.crossovers


def slower_than_told(**changes: object) -> Measurement:
    told = answer().options[0].step_seconds
    assert told is not None
    return a_measurement(GPU, 16, 1.5 * told.median, **changes)


def test_the_one_that_was_measured_goes_before_its_twin() -> None:
    found = answer(slower_than_told())
    assert [(option.plan, option.basis) for option in found.options] == [(GPU, "measured"), (SECOND, "probed")]
    assert found.confidence == 1.0


def test_what_one_of_them_taught_is_known_of_the_other() -> None:
    before, after = (answer(*rows).options[1].step_seconds for rows in ((), (slower_than_told(),)))
    assert before is not None
    assert after is not None
    assert after.median > 1.1 * before.median


RAN_OUT = a_measurement(GPU, 16, 0.1, outcome="out-of-memory", available_bytes=23 * GB)
REFUSED = a_measurement(GPU, 16, 0.1, outcome="unsupported", reason="There is no kernel.")


@pytest.mark.parametrize("row", [RAN_OUT, REFUSED], ids=["ran out of memory", "refused"])
def test_what_did_not_run_on_one_of_them_is_not_recommended_on_its_twin(row: Measurement) -> None:
    assert answer().recommended == GPU
    found = answer(row)
    assert found.recommended is None
    first, second = found.options
    assert first.why_not
    assert (first.why_not, first.fits, first.max_batch_size) == (second.why_not, second.fits, second.max_batch_size)
    assert not second.step_seconds


def test_what_one_of_them_refused_at_another_batch_its_twin_may_have_run_at_this_one() -> None:
    """A kernel may refuse what is too large for it alone."""
    refused = replace(REFUSED, plan=SECOND, batch_size=4096)
    assert all(option.cannot_run for option in answer(refused).options)
    assert not any(option.cannot_run for option in answer(refused, a_measurement(GPU, 16, 0.1)).options)
    gone = replace(REFUSED, plan=SECOND, reason="torch has no such device here.", momentary=True)
    assert [option.plan.device for option in answer(gone).options if option.cannot_run] == ["cuda:1"]
    here = answer(replace(REFUSED, plan=SECOND), a_measurement(GPU, 16, 0.1))
    assert [option.plan.device for option in here.options if option.cannot_run] == ["cuda:1"]


def test_what_ran_out_of_memory_is_tried_on_a_twin_with_more_of_it_or_where_it_ran() -> None:
    beside_others = replace(RAN_OUT, available_bytes=8 * GB)
    first, second = sorted(answer(beside_others, first_free=8 * GB).options, key=lambda option: option.plan.device)
    assert (first.fits, second.fits) == (False, True)
    ran = a_measurement(SECOND, 16, 0.1, memory=MemoryPeak(reserved_bytes=GB))
    assert answer(RAN_OUT, ran).recommended == SECOND


def test_what_failed_on_one_of_them_may_run_on_its_twin() -> None:
    broken = a_measurement(GPU, 16, 0.1, outcome="failed", reason="An uncorrectable error.")
    assert answer(broken).recommended == SECOND
    assert answer(broken, a_measurement(SECOND, 16, 0.1)).recommended == SECOND


def test_what_one_of_them_took_its_twin_takes_too() -> None:
    """It told less at a batch of 16; of a batch of 64 nobody knows more than that."""
    took = a_measurement(GPU, 16, 0.1, memory=MemoryPeak(allocated_bytes=3 * GB, reserved_bytes=3 * GB))
    first, second = answer(took).options
    assert (first.basis, second.basis) == ("measured", "probed")
    assert first.max_batch_size == second.max_batch_size
    assert second.max_batch_size
    before = answer().options[1].max_batch_size
    assert before
    assert second.max_batch_size < before


def test_what_others_do_on_one_card_is_not_told_of_its_free_twin() -> None:
    assert answer(slower_than_told(), first=90.0, second=0.0).options[0].plan == SECOND
    assert answer(slower_than_told(device_busy_fraction=0.9), first=0.0, second=0.0).options[0].plan == SECOND


def test_the_answer_is_not_compared_with_the_same_plan_on_its_twin() -> None:
    for found in (answer(), answer(slower_than_told())):
        assert "as fast as" not in found.verdict


SMALL = a_summary(parameters=1000, flops_per_sample=1e3, activation_bytes_per_sample=1e3, operations=20)


@pytest.mark.parametrize(
    ("batch_size", "first", "second"),
    [
        (16, {"memory_free_bytes": 0}, {}),
        (16, {"memory_free_bytes": 550_000_000, "utilization_percent": 90.0}, {"utilization_percent": 0.0}),
        (1_000_000, {"memory_free_bytes": 0}, {"memory_free_bytes": 800_000_000}),
    ],
    ids=["one is full", "one is shared", "neither holds so much"],
)
def test_crossovers_are_told_of_the_card_that_has_room(
    batch_size: int, first: dict[str, object], second: dict[str, object]
) -> None:
    """Also where the CPU is recommended, and so neither of the two."""
    survey = a_survey(gpus=gpus(first, second))
    workload = replace(a_workload(batch_size), model=SMALL)
    found = recommend(survey, PROFILE, None, [], Request(workload, "fp32"))
    assert found.recommended == ONE
    assert {row.to.key for row in found.crossovers} == {SECOND.key}
    (told,) = (row for row in found.crossovers if row.data == "resident")
    (option,) = (option for option in found.options if option.plan == SECOND)
    assert told.looked_at[1] == min(option.max_batch_size or 0, largest_worth_looking_at(workload))


@pytest.mark.parametrize("profile", [None, PROFILE])
def test_crossovers_are_told_of_the_card_that_was_measured_with_nobody_else_on_it(profile: Profile | None) -> None:
    """One thread is ahead at the batch asked for, and is left for the card at a larger one."""
    rows = [a_measurement(ONE, batch, 0.001 * batch) for batch in (4, 16, 1 << 16)]
    rows += [a_measurement(SECOND, batch, 0.05, device_busy_fraction=0.0) for batch in (4, 16, 1 << 16)]
    rows += [a_measurement(GPU, 16, 3.0, device_busy_fraction=0.9)]
    survey = a_survey(gpus=gpus({"utilization_percent": 90.0}, {"utilization_percent": 0.0}))
    found = recommend(survey, profile, None, rows, Request(replace(a_workload(16), model=SMALL), "fp32"))
    assert found.recommended == ONE
    told = [row for row in found.crossovers if row.start == ONE and row.data == "pageable"]
    assert [(row.to, row.kind, row.basis) for row in told] == [(SECOND, "at", "probed")]


def test_each_precision_s_crossovers_are_told_of_the_card_that_it_was_measured_on() -> None:
    """And those between the two, as the cards are alike."""
    halved = Plan("cuda:0", "fp16")
    lines = ((ONE, 0.0, 0.001), (SECOND, 0.05, 0.0), (halved, 0.06, 0.0))
    rows = [a_measurement(plan, batch, at + slope * batch) for plan, at, slope in lines for batch in (4, 16, 256)]
    survey = a_survey(gpus=gpus({"compute_capability": "7.5"}, {"compute_capability": "7.5"}))
    found = recommend(survey, None, None, rows, Request(replace(a_workload(16), model=SMALL)))
    pairs = [(row.start, row.to, row.basis) for row in found.crossovers if row.data == "pageable"]
    assert pairs == [(ONE, halved, "probed"), (ONE, SECOND, "probed"), (SECOND, halved, "probed")]


def test_on_another_machine_too_they_are_no_rivals() -> None:
    rig = replace(PROFILE, name="rig", fingerprint="of another")
    assert kinds_elsewhere(None, rig) == {"cuda:1": "cuda:0"}
    known = kinds_elsewhere(a_survey(gpus=gpus({}, {})), replace(rig, like={}))
    assert known["cuda:0"] == known["cuda:1"]
    for asked in (("cuda:0", "cuda:1"), ("cuda:1", "cuda:0")):
        found = recommend(a_survey(), rig, None, [], Request(a_workload(16), "fp32", asked, profile="rig"))
        assert {option.plan.device for option in found.options} == {"cuda:0", "cuda:1"}
        assert found.confidence == 1.0
        assert "too close" not in found.verdict
        assert not found.crossovers


@pytest.mark.parametrize(
    ("first", "second", "asked", "measured"),
    [
        (0.0, 0.0, (), ["cpu", "cuda:0", "cuda:2"]),
        (0.0, None, (), ["cpu", "cuda:0", "cuda:2"]),
        (90.0, 0.0, (), ["cpu", "cuda:1", "cuda:2"]),
        (90.0, 80.0, (), ["cpu", "cuda:0", "cuda:2"]),
        (None, None, (), ["cpu", "cuda:0", "cuda:1", "cuda:2"]),  # as after another measurement
        (None, 90.0, (), ["cpu", "cuda:0", "cuda:1", "cuda:2"]),
        (90.0, 0.0, ("cuda:0", "cpu"), ["cpu", "cuda:0", "cuda:1", "cuda:2"]),
        (0.0, 0.0, ("cuda",), ["cpu", "cuda:0", "cuda:2"]),
    ],
)
def test_of_each_kind_one_is_measured_and_what_was_asked_for_by_name(
    first: float | None, second: float | None, asked: tuple[str, ...], measured: list[str]
) -> None:
    use = ({"utilization_percent": first}, {"utilization_percent": second})
    survey = a_survey(gpus=gpus(*use, {"name": "NVIDIA T400"}))
    plans = [ONE, GPU, SECOND, replace(GPU, device="cuda:2")]
    assert [plan.device for plan in one_of_each_kind(survey, plans, asked)] == measured
    without_first = [plan for plan in plans if plan != GPU]  # it does not fit there
    assert [plan.device for plan in one_of_each_kind(survey, without_first, asked)] == ["cpu", "cuda:1", "cuda:2"]


def test_one_model_of_them_is_fitted() -> None:
    assert model_of_plan(PROFILE, SECOND) is model_of_plan(PROFILE, GPU) is not None


def test_without_a_card_like_it_nothing_is_known_of_one_that_was_not_measured() -> None:
    assert model_of_plan(replace(PROFILE, like={}), SECOND) is None


def test_on_another_machine_too_a_card_is_asked_for_by_its_own_name() -> None:
    def devices(*asked: str) -> list[str]:
        return [plan.device for plan in profiled_plans(PROFILE, Request(a_workload(16), "fp32", asked))]

    assert devices("cuda:1") == ["cuda:1"]
    assert devices("cuda:0") == devices("cuda") == ["cuda:0"]
    assert devices("cpu", "cuda:1") == ["cpu", "cuda:1"]
    for asked in (("cuda:2",), ("cpu", "cuda:2"), ("cuda", "cdua:0"), ("gpu", "cpu")):
        with pytest.raises(
            InvalidRequest, match=r"a device that was asked for\. It was calibrated for: cpu \(fp32\), cuda:0"
        ):
            devices(*asked)


def test_cards_that_are_no_more_alike_than_their_name_are_rivals() -> None:
    kinds = same_kinds(a_survey(gpus=gpus({}, {"memory_total_bytes": 10**10}, {})))
    assert kinds["cuda:0"] == kinds["cuda:2"] != kinds["cuda:1"]


def test_a_pooled_profile_tells_a_card_by_its_like_until_it_was_measured_itself() -> None:
    plain = replace(PROFILE, like={})
    assert pool([plain, PROFILE]).like == {"cuda:1": "cuda:0"}
    own = replace(
        plain, points=tuple(replace(each, plan=SECOND) for each in PROFILE.points if each.plan == GPU), networks=()
    )
    assert pool([own, PROFILE]).like == {}
