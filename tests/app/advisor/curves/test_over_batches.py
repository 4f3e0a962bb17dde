"""Crossovers of whole plans: by the error of their ratio, where their own intervals overlap."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from app.advisor.curves.over_batches import (
    Batches,
    crossovers_of,
    curves_over,
    largest_worth_looking_at,
    startup_of,
)
from app.advisor.memory_model.stretches import Stretch, Stretches
from app.advisor.recommendation import Crossover, CrossoverKind
from app.advisor.request import Request
from app.advisor.summary import trace_of_summary
from app.advisor.time_model.measured import MeasuredTime
from app.advisor.time_model.step_time import PlanTime, times_of_plans
from probes import bounds
from probes.measurement import Measurement, Overheads
from tests.app.advisor.build import ONE, ONE_BF16, TWO, a_measurement, a_workload
from tests.app.advisor.curves.drawn import ERRORS, Curve, Drawn, up_to
from tests.app.advisor.machine import GPU, a_profile


def crossing(first: Curve, second: Curve, errors: Mapping[str, float] | None = ERRORS, room: int = 4096) -> Crossover:
    times: dict[tuple[object, ...], PlanTime] = {
        ONE.key: Drawn(ONE, first, errors),
        TWO.key: Drawn(TWO, second, errors),
    }
    (found,) = crossovers_of(Batches(a_workload(), times, {ONE.key: up_to(room)}), [(ONE, TWO)], [])
    return found


def steady(batch: int) -> float:
    return 1e-5 * batch


def late(batch: int) -> float:
    """Ahead of `steady` beyond 100 samples, by more the further."""
    return 5e-4 + 5e-6 * batch


def test_two_predictions_that_err_together_cross_where_their_ratio_says_so() -> None:
    found = crossing(steady, late)
    assert found.kind == "at"
    assert found.low is not None
    assert found.high is not None
    assert found.batch_size == found.medians_cross_at == 101
    assert found.low < 101 < found.high < 130


def test_predictions_of_different_profiles_are_told_apart_by_their_own_intervals() -> None:
    found = crossing(steady, late, errors=None)
    assert (found.kind, found.batch_size) == ("undecided", None)
    assert found.medians_cross_at == 101


@pytest.mark.parametrize(
    ("share", "kind", "medians"),
    [(0.5, "always", 1), (2.0, "never", None), (0.97, "undecided", 1), (1.03, "undecided", None)],
)
def test_parallel_curves_are_always_never_or_cannot_be_told(
    share: float, kind: CrossoverKind, medians: int | None
) -> None:
    found = crossing(steady, lambda batch: share * steady(batch))
    assert (found.kind, found.batch_size, found.low, found.high) == (kind, None, None, None)
    assert found.medians_cross_at == medians


def test_only_what_holds_up_to_the_largest_batch_counts_on_a_curve_with_a_hump() -> None:
    """Ahead from 16 on but for a hump at 200 to 600, where another algorithm is taken."""

    def humped(batch: int) -> float:
        return steady(batch) * (2.0 if batch < 16 or 200 <= batch <= 600 else 0.5)

    found = crossing(steady, humped)
    assert (found.kind, found.batch_size, found.low, found.medians_cross_at) == ("at", 601, 601, 601)


def test_a_plan_that_falls_behind_at_the_end_never_crosses() -> None:
    def thrashing(batch: int) -> float:
        return steady(batch) * (3.0 if batch > 2000 else 0.5)

    assert crossing(steady, thrashing).kind == "never"
    assert crossing(steady, thrashing, room=2000).kind == "always"


def test_no_batch_beyond_what_either_plan_can_hold_is_looked_at() -> None:
    times: dict[tuple[object, ...], PlanTime] = {ONE.key: Drawn(ONE, steady), TWO.key: Drawn(TWO, late)}
    batches = Batches(a_workload(), times, {ONE.key: up_to(64), TWO.key: up_to(256)})
    sizes, curves = curves_over(batches, [ONE, TWO])
    assert (sizes[0], sizes[-1]) == (1, 256)
    assert [curve.step_seconds[-1] is None for curve in curves] == [True, False]
    (found,) = crossovers_of(batches, [(ONE, TWO)], [])
    assert found.kind == "never"


def test_a_batch_that_failed_is_a_hole_and_no_end() -> None:
    times: dict[tuple[object, ...], PlanTime] = {ONE.key: Drawn(ONE, steady), TWO.key: Drawn(TWO, late)}
    failed = {"pageable": {ONE.key: frozenset({16})}, "pinned": {ONE.key: frozenset({16, 64})}}
    batches = Batches(a_workload(), times, {}, failed=failed)
    assert [batches.fed(data).can_run(ONE, 64) for data in ("pageable", "pinned", "resident")] == [True, False, True]
    assert 16 not in batches.grid([ONE, TWO])
    assert 16 in batches.grid([TWO])
    assert batches.can_run(ONE, 32)
    sizes, curves = curves_over(batches, [ONE, TWO])
    assert [curve.step_seconds[sizes.index(16)] is None for curve in curves] == [True, False]


def test_where_a_plan_has_room_again_at_larger_batches_only_those_that_it_holds_are_looked_at() -> None:
    times: dict[tuple[object, ...], PlanTime] = {ONE.key: Drawn(ONE, steady), TWO.key: Drawn(TWO, late)}
    room = {TWO.key: Stretches((Stretch(1, 90), Stretch(700, 3000)))}
    batches = Batches(a_workload(), times, room)
    assert [batches.can_run(TWO, size) for size in (90, 700, 3000, 91, 699, 3001)] == [True] * 3 + [False] * 3
    sizes, curves = curves_over(batches, [ONE, TWO])
    there = {size for size, seconds in zip(sizes, curves[1].step_seconds, strict=True) if seconds is not None}
    assert there == {1, 2, 4, 8, 16, 32, 64, 1024, 2048}
    assert {90, 700, 3000} <= set(batches.grid([ONE, TWO])) <= {*there, 90, 700, 3000}
    (found,) = crossovers_of(batches, [(ONE, TWO)], [])
    assert (found.kind, found.batch_size, found.high, found.looked_at) == ("at", 700, 700, (1, 3000))


def test_a_ratio_that_crosses_where_a_plan_has_no_room_is_told_of_a_batch_that_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Ratio:
        ran = frozenset[int]()

        def log_ratio(self, batch_size: int) -> float:
            return math.log(batch_size / 101)

        def sign(self, batch_size: int) -> int:
            return 1 if batch_size > 120 else -1 if batch_size < 85 else 0

    monkeypatch.setattr("app.advisor.curves.over_batches._ratio_of", lambda *_: Ratio())
    times: dict[tuple[object, ...], PlanTime] = {ONE.key: Drawn(ONE, steady), TWO.key: Drawn(TWO, late)}
    batches = Batches(a_workload(), times, {TWO.key: Stretches((Stretch(1, 90), Stretch(700, 3000)))})
    (found,) = crossovers_of(batches, [(ONE, TWO)], [])
    assert found.medians_cross_at == found.batch_size == 700


def test_a_device_crosses_anew_for_each_way_of_feeding_it() -> None:
    workload = a_workload(64)
    plans = (ONE, ONE_BF16, GPU)
    times = times_of_plans(plans, a_profile(plans), trace_of_summary(workload), [], workload)
    batches = Batches(workload, times, {})
    found = crossovers_of(batches, [(ONE, GPU), (ONE, ONE_BF16)], [])
    assert [(row.to, row.data) for row in found] == [
        (GPU, "resident"),
        (GPU, "pageable"),
        (GPU, "pinned"),
        (ONE_BF16, "pageable"),
    ]
    assert all(row.launch_bound_until is not None for row in found[:3])


def test_what_was_measured_together_is_told_apart_along_the_prediction_too() -> None:
    """Measured at one batch, a quarter apart: eight times further out either time is known to a fifth, their ratio
    still better."""
    workload = a_workload(16)
    rows = [a_measurement(ONE, 16, 1.0), a_measurement(TWO, 16, 0.75)]
    times = times_of_plans((ONE, TWO), a_profile(), trace_of_summary(workload), rows, workload)
    far = [times[plan.key].at(64, "pageable") for plan in (ONE, TWO)]
    assert all(estimate is not None and estimate.within is not None for estimate in far)
    (found,) = crossovers_of(Batches(workload, times, {ONE.key: up_to(64), TWO.key: up_to(64)}), [(ONE, TWO)], [])
    assert found.kind in ("at", "always")


def test_the_batches_that_ran_are_looked_at() -> None:
    row = a_measurement(ONE, 37, 1.0)
    times: dict[tuple[object, ...], PlanTime] = {
        ONE.key: PlanTime(ONE, MeasuredTime({37: row}, "pageable"), None, None),
        TWO.key: Drawn(TWO, steady),
    }
    batches = Batches(Request(a_workload(5)).workload, times, {})
    assert {5, 37} <= set(batches.grid([ONE, TWO]))


@pytest.mark.parametrize(("ran", "looked_at"), [((16,), None), ((64, 256), (32, 512))])
def test_where_nothing_is_predicted_a_crossover_is_told_of_the_batches_near_those_that_ran(
    ran: tuple[int, ...], looked_at: tuple[int, int] | None
) -> None:
    """One thread against two, the second always ahead: at one batch that is no crossover."""
    workload = a_workload(ran[0])
    rows = [a_measurement(plan, batch, share * batch) for batch in ran for plan, share in ((ONE, 0.1), (TWO, 0.05))]
    times = times_of_plans((ONE, TWO), None, None, rows, workload)
    found = crossovers_of(Batches(workload, times, {}), [(ONE, TWO)], rows)
    assert [(row.kind, row.looked_at) for row in found] == ([] if looked_at is None else [("always", looked_at)])


def test_no_batch_is_looked_at_that_may_not_be_asked_for() -> None:
    assert largest_worth_looking_at(a_workload(bounds.MAX_BATCH_SIZE)) == bounds.MAX_BATCH_SIZE


def test_from_which_batch_on_a_device_is_the_limit_is_the_same_beside_every_plan() -> None:
    """However few samples the other plan can hold."""
    workload = a_workload(16)
    times = times_of_plans((ONE, TWO, GPU), a_profile((ONE, TWO, GPU)), trace_of_summary(workload), [], workload)
    batches = Batches(workload, times, {ONE.key: up_to(2), TWO.key: up_to(64), GPU.key: up_to(4096)})
    told = {row.launch_bound_until for row in crossovers_of(batches, [(ONE, GPU), (TWO, GPU)], [])}
    assert len(told) == 1
    assert None not in told


@pytest.mark.parametrize(("seconds", "kind", "far"), [(0.4, "always", "always"), (50.0, "never", "undecided")])
def test_a_crossover_rests_on_what_the_batches_rest_on_that_it_hangs_on(
    seconds: float, kind: CrossoverKind, far: CrossoverKind
) -> None:
    """Both ran at the batch asked for; at the largest looked at neither did, and a prediction that was off by a factor
    of a hundred tells nothing there."""
    workload = a_workload(16)
    rows = [a_measurement(ONE, 16, 1.0), a_measurement(TWO, 16, seconds)]
    times = times_of_plans((ONE, TWO), a_profile(), trace_of_summary(workload), rows, workload)
    (found,) = crossovers_of(Batches(workload, times, {}), [(ONE, TWO)], rows)
    assert (found.kind, found.basis) == (far, "predicted")
    (near,) = crossovers_of(Batches(workload, times, {ONE.key: up_to(16), TWO.key: up_to(16)}), [(ONE, TWO)], rows)
    assert near.kind == kind
    assert near.basis == ("predicted" if kind == "always" else "probed")  # at a batch of one neither ran


def test_a_start_is_repaid_by_steps_of_its_own_batch() -> None:
    """On a CPU a first step takes longer by what its batch touches; on a device by what any first step loads."""
    workload = a_workload(16)
    rows = [
        a_measurement(ONE, 16, 1.0, startup_seconds=0.1),
        a_measurement(ONE, 512, 30.0, startup_seconds=60.0),
        a_measurement(GPU, 16, 0.5, startup_seconds=0.2),
        a_measurement(GPU, 64, 2.0, startup_seconds=3.0),
    ]
    assert startup_of(ONE, rows, 16) == 0.1
    assert startup_of(ONE, rows, 8) is None
    assert startup_of(GPU, rows, 16) == 3.0
    times = times_of_plans((ONE, GPU), a_profile((ONE, GPU)), trace_of_summary(workload), rows, workload)
    found = crossovers_of(Batches(workload, times, {}), [(ONE, GPU)], rows)
    assert found[0].break_even_steps == math.ceil((3.0 - 0.1) / (1.0 - 0.5))


def test_where_a_device_was_measured_what_limits_it_there_is_what_was_measured() -> None:
    workload = a_workload(64)
    overheads = {
        "computing": Overheads(launch_seconds=0.5, device_busy=1.0),
        "launching": Overheads(launch_seconds=1.0, device_busy=0.3),
    }

    def until(measured: str) -> int | None:
        rows = [a_measurement(ONE, 64, 2.0), a_measurement(GPU, 64, 1.0, overheads=overheads[measured])]
        times = times_of_plans((ONE, GPU), a_profile((ONE, GPU)), trace_of_summary(workload), rows, workload)
        batches = Batches(workload, times, {})
        return crossovers_of(batches, [(ONE, GPU)], rows)[0].launch_bound_until

    computing, launching = until("computing"), until("launching")
    assert computing is not None
    assert computing <= 64
    assert launching is None or launching > 64


def test_a_device_that_waits_for_the_host_at_every_batch_is_no_device_of_which_nothing_is_predicted() -> None:
    workload = a_workload(64)
    waits = Overheads(launch_seconds=1.0, device_busy=0.1)
    rows = [a_measurement(plan, batch, 1.0, overheads=waits) for plan in (ONE, GPU) for batch in (32, 64)]

    def told(room: int, *, calibrated: bool = True) -> tuple[int | None, bool | None]:
        profile = a_profile((ONE, ONE_BF16, GPU)) if calibrated else None
        times = times_of_plans((ONE, ONE_BF16, GPU), profile, trace_of_summary(workload), rows, workload)
        batches = Batches(workload, times, {GPU.key: up_to(room)})
        on_cpu = crossovers_of(batches, [(ONE, ONE_BF16)], rows)
        assert {(row.launch_bound_until, row.launch_bound_at_largest) for row in on_cpu} <= {(None, None)}
        found = crossovers_of(batches, [(ONE, GPU)], rows)[0]
        return found.launch_bound_until, found.launch_bound_at_largest

    assert told(64) == (None, True)
    until, at_largest = told(10**6)
    assert until is not None
    assert not at_largest
    assert told(64, calibrated=False) == (None, None)


@pytest.mark.parametrize(("launch", "busy"), [(0.5, 1.0), (1.0, 0.3), (0.4, None)])
def test_a_batch_is_limited_by_launching_by_its_parts_as_by_its_crossover(launch: float, busy: float | None) -> None:
    """Also where it was not measured itself."""
    workload = a_workload(64)
    parts = Overheads(launch_seconds=launch, compute_seconds=1.0 - launch, device_busy=busy)
    rows = [a_measurement(ONE, 64, 2.0), a_measurement(GPU, 64, 1.0, overheads=parts)]
    times = times_of_plans((ONE, GPU), a_profile((ONE, GPU)), trace_of_summary(workload), rows, workload)
    batches = Batches(workload, times, {})
    until = crossovers_of(batches, [(ONE, GPU)], rows)[0].launch_bound_until
    for batch in (16, 32, 128, 256):
        is_computing = (times[GPU.key].breakdown(batch, "pageable").launch or 0.0) == 0.0
        assert is_computing is (until is not None and batch >= until)


def test_steps_that_repay_a_start_are_told_of_a_batch_that_runs() -> None:
    def rows(batch_size: int) -> list[Measurement]:
        return [
            a_measurement(ONE, batch_size, 1.0, startup_seconds=0.1),
            a_measurement(GPU, batch_size, 0.5, startup_seconds=3.0),
        ]

    def told(asked: int, room: int) -> int | None:
        workload = a_workload(asked)
        times = times_of_plans((ONE, GPU), a_profile((ONE, GPU)), trace_of_summary(workload), rows(16), workload)
        batches = Batches(workload, times, {GPU.key: up_to(room)})
        return crossovers_of(batches, [(ONE, GPU)], rows(16))[0].break_even_steps

    assert told(16, 410) is not None
    assert told(4096, 410) is None


def test_a_start_of_the_cpu_that_nobody_measured_is_nothing_to_repay_and_one_of_a_device_is_not_known() -> None:
    workload = a_workload(16)

    def told(cpu: float | None, device: float | None) -> int | None:
        rows = [a_measurement(ONE, 16, 1.0, startup_seconds=cpu), a_measurement(GPU, 16, 0.5, startup_seconds=device)]
        times = times_of_plans((ONE, GPU), a_profile((ONE, GPU)), trace_of_summary(workload), rows, workload)
        return crossovers_of(Batches(workload, times, {}), [(ONE, GPU)], rows)[0].break_even_steps

    assert told(None, 3.0) == 6
    assert told(0.5, 3.0) == 5
    assert told(0.5, None) is None
