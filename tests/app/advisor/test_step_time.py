import math

import pytest

from app.advisor.intervals import deviation
from app.advisor.step_time import PlanTime, compare, shared_spread, times_of_plans, weakest
from app.advisor.summary import trace_of_summary
from probes.measurement import Measurement
from probes.profile import Profile
from probes.workload.description import Plan
from tests.app.advisor.build import ONE, TWO, TWO_BF16, a_measurement, a_workload
from tests.app.advisor.machine import GPU, a_profile

WORKLOAD = a_workload()


def times(rows: list[Measurement], profile: Profile | None, *plans: Plan) -> list[PlanTime]:
    found = times_of_plans(plans, profile, trace_of_summary(WORKLOAD), rows, WORKLOAD)
    return [found[plan.key] for plan in plans]


def test_what_ran_is_measured_what_lies_near_is_probed_and_the_rest_predicted() -> None:
    (time,) = times([a_measurement(ONE, 4, 1.0), a_measurement(ONE, 16, 3.7)], a_profile(), ONE)
    bases = {batch: estimate.basis for batch in (1, 2, 4, 9, 32, 33) if (estimate := time.at(batch, "pageable"))}
    assert bases == {1: "predicted", 2: "probed", 4: "measured", 9: "probed", 32: "probed", 33: "predicted"}


def test_one_measured_batch_moves_the_predicted_curve_and_less_the_further_away() -> None:
    (alone,) = times([], a_profile(), ONE)
    before = alone.at(16, "pageable")
    assert before is not None
    (time,) = times([a_measurement(ONE, 16, 1.5 * before.seconds.median)], a_profile(), ONE)
    moved = []
    for batch in (16, 32, 128, 1024, 1 << 20):
        predicted, told = alone.at(batch, "pageable"), time.at(batch, "pageable")
        assert predicted is not None
        assert told is not None
        moved.append(told.seconds.median / predicted.seconds.median)
    assert moved[0] == pytest.approx(1.5)
    assert moved == sorted(moved, reverse=True)
    assert moved[2] == pytest.approx(1.5**0.5)
    assert moved[-1] == pytest.approx(1.0, abs=0.02)


def test_the_further_from_what_ran_the_less_is_known() -> None:
    (time,) = times([a_measurement(ONE, 16, 1.0)], a_profile(), ONE)
    spreads = [deviation(estimate.seconds) for batch in (16, 32, 64, 128) if (estimate := time.at(batch, "pageable"))]
    assert spreads == sorted(spreads)
    assert len(set(spreads)) > 2


def test_a_measured_plan_corrects_the_predictions_of_its_device_and_no_other() -> None:
    plain = times([], a_profile((ONE, TWO, GPU)), ONE, TWO, GPU)
    seconds = plain[0].at(16, "pageable")
    assert seconds is not None
    rows = [a_measurement(ONE, 16, 2 * seconds.seconds.median)]
    corrected = times(rows, a_profile((ONE, TWO, GPU)), ONE, TWO, GPU)
    for before, after, factor in zip(plain[1:], corrected[1:], (2.0, 1.0), strict=True):
        old, new = before.at(16, "pageable"), after.at(16, "pageable")
        assert old is not None
        assert new is not None
        assert new.seconds.median == pytest.approx(factor * old.seconds.median)


def test_another_process_may_differ_more_where_several_threads_run() -> None:
    one, two = times([a_measurement(ONE, 32, 0.01), a_measurement(TWO, 32, 0.01)], None, ONE, TWO)
    single, several = (time.at(32, "pageable") for time in (one, two))
    assert single is not None
    assert several is not None
    assert several.seconds.high / several.seconds.median > single.seconds.high / single.seconds.median > 1.07
    assert several.within == pytest.approx(single.within)  # so which is faster is known as well as before


def test_without_a_profile_only_what_was_measured_is_known() -> None:
    (one, two) = times([a_measurement(ONE, 16, 1.0)], None, ONE, TWO)
    assert one.at(16, "pageable") is not None
    assert one.at(32, "pageable") is None
    assert two.at(16, "pageable") is None
    assert two.breakdown(16, "pageable").compute is None


def test_two_predictions_are_told_apart_though_their_intervals_overlap() -> None:
    (one, two, half) = times([], a_profile(), ONE, TWO, TWO_BF16)
    first, second = one.at(16, "pageable"), two.at(16, "pageable")
    assert first is not None
    assert second is not None
    assert compare(first, second) == 1
    assert compare(second, first) == -1
    assert compare(first, first) == 0
    assert compare(first, None) is None
    assert half.at(16, "pageable") is not None


def test_two_measurements_carried_far_are_told_apart_no_worse_than_two_predictions() -> None:
    rows = [a_measurement(ONE, 16, 1.0), a_measurement(TWO, 16, 0.8)]
    carried = [time.at(512, "pageable") for time in times(rows, a_profile(), ONE, TWO)]
    plain = [time.at(512, "pageable") for time in times([], a_profile(), ONE, TWO)]
    there = [time.at(16, "pageable") for time in times(rows, a_profile(), ONE, TWO)]
    first, second, third = (shared_spread(one, two) for one, two in (there, carried, plain) if one and two)
    assert first is not None
    assert second is not None
    assert third is not None
    assert first < second <= math.hypot(first, third) + 1e-9
    measured, predicted = there[0], plain[1]
    assert measured is not None
    assert predicted is not None
    assert shared_spread(measured, predicted) is None  # they do not err together


def test_the_weakest_basis_is_the_one_that_counts() -> None:
    assert weakest(["measured", "predicted", "probed"]) == "predicted"
    assert weakest([]) == "assumed"
