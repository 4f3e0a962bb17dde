"""A step on a device that is fed in another way than it was measured, or than the profile knows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.advisor.curves.over_batches import Batches, crossovers_of
from app.advisor.recommendation import Breakdown
from app.advisor.summary import trace_of_summary
from app.advisor.time_model.predicted import breakdown_parts
from app.advisor.time_model.step_time import PlanTime, times_of_plans
from probes.measurement import Measurement, Overheads
from probes.profile import Profile
from probes.workload.description import Workload
from tests.app.advisor.build import ONE, a_measurement, a_workload
from tests.app.advisor.machine import GPU, a_profile

WORKLOAD = a_workload()
WHOLE = a_profile((ONE, GPU))
WITHOUT_PAGEABLE = replace(
    WHOLE, points=tuple(point for point in WHOLE.points if point.parameters.get("pinned", 1.0) == 1.0)
)
WITHOUT_PINNED = replace(
    WHOLE, points=tuple(point for point in WHOLE.points if point.parameters.get("pinned", 0.0) == 0.0)
)


def on_the_gpu(profile: Profile | None, *rows: Measurement) -> PlanTime:
    return times_of_plans((ONE, GPU), profile, trace_of_summary(WORKLOAD), rows, WORKLOAD)[GPU.key]


def fed_pageable(step: float, copy: float, launch: float, busy: float | None = None) -> Measurement:
    parts = Overheads(transfer_seconds=copy, launch_seconds=launch, device_busy=busy)
    return a_measurement(GPU, 16, step, data="pageable", overheads=parts)


def median(time: PlanTime, data: str) -> float:
    found = time.seconds(16, data)
    assert found is not None
    return found.median


def test_a_copy_that_the_profile_does_not_know_is_not_taken_for_none() -> None:
    time = on_the_gpu(WITHOUT_PAGEABLE)
    known = [data for data in ("resident", "pageable", "pinned") if time.at(16, data) is not None]
    assert known == ["resident", "pinned"]
    assert time.breakdown(16, "pageable") == Breakdown()
    times = times_of_plans((ONE, GPU), WITHOUT_PAGEABLE, trace_of_summary(WORKLOAD), [], WORKLOAD)
    batches = Batches(WORKLOAD, times, {})
    assert [row.data for row in crossovers_of(batches, [(ONE, GPU)], [])] == ["resident", "pinned"]


def test_parts_of_a_step_that_is_bound_by_pageable_copies_add_up_to_it() -> None:
    time = on_the_gpu(WITHOUT_PINNED)
    assert sum(breakdown_parts(time.breakdown(16, "pinned"))) == pytest.approx(median(time, "pinned"))
    assert median(time, "resident") <= median(time, "pinned") <= median(time, "pageable")


def test_what_was_measured_with_another_copy_is_not_told_without_any() -> None:
    """From pinned memory, of which nothing is known, the measured copy takes no longer than it did."""
    fed_pinned = a_measurement(GPU, 16, 0.011, data="pinned", overheads=Overheads(0.008, 0.001))
    assert on_the_gpu(WITHOUT_PAGEABLE, fed_pinned).at(16, "pageable") is None
    time = on_the_gpu(WITHOUT_PINNED, fed_pageable(0.011, 0.008, 0.001))
    bound, least = time.seconds(16, "pinned"), time.seconds(16, "resident")
    assert bound is not None
    assert least is not None
    assert bound.median == pytest.approx(0.008)
    assert bound.low <= least.median


@pytest.mark.parametrize("profile", [WHOLE, WITHOUT_PINNED, None], ids=["whole", "without pinned", "none"])
def test_the_copy_that_was_measured_is_the_one_that_is_taken_away(profile: Profile | None) -> None:
    """Whatever the profile says of copies as large."""
    assert median(on_the_gpu(profile, fed_pageable(0.011, 0.008, 0.001)), "resident") == pytest.approx(0.003, rel=0.02)


def test_another_copy_is_told_on_the_scale_of_the_measured_one() -> None:
    time = on_the_gpu(WHOLE, fed_pageable(0.011, 0.008, 0.001))
    assert time.predicted is not None
    pageable, pinned = (time.predicted.copy_seconds(16, data) for data in ("pageable", "pinned"))
    assert pageable is not None
    assert pinned is not None
    copy = 0.008 * pinned / pageable
    assert median(time, "pinned") == pytest.approx(max(0.003, copy), rel=0.02)


@pytest.mark.parametrize(("launch", "busy"), [(0.004, None), (0.001, 0.4)])
def test_without_its_copy_a_step_takes_what_issuing_and_computing_take(launch: float, busy: float | None) -> None:
    least = max(launch, (busy or 0.0) * 0.011)
    assert median(on_the_gpu(WHOLE, fed_pageable(0.011, 0.0109, launch, busy)), "resident") == pytest.approx(least)


def test_on_a_cpu_every_way_of_feeding_is_the_same() -> None:
    rows = [a_measurement(ONE, 16, 1.0)]
    time = times_of_plans((ONE,), None, None, rows, WORKLOAD)[ONE.key]
    assert len({time.seconds(16, data) for data in ("resident", "pageable", "pinned")}) == 1


def test_in_inference_no_loss_is_read_and_none_is_priced() -> None:
    read, never = (a_workload(mode="inference", log_every=every) for every in (1, None))
    ran = a_measurement(ONE, 16, 0.01, overheads=Overheads(0.0, 0.001, 0.003, 0.006))

    def told(workload: Workload, rows: list[Measurement]) -> list[Breakdown]:
        times = times_of_plans((ONE, GPU), WHOLE, trace_of_summary(workload), rows, workload)
        return [times[plan.key].breakdown(16, "pageable") for plan in (ONE, GPU)]

    for rows in ([], [ran]):
        assert told(read, rows) == told(never, rows)
        assert {parts.synchronize for parts in told(read, rows)} == {0.0}
    assert a_workload(log_every=1).readings_every == 1
