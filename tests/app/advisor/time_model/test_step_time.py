import itertools
import math
from dataclasses import replace

import pytest

from app.advisor.crowding import Crowd, crowd_of
from app.advisor.recommendation import Breakdown, Interval
from app.advisor.summary import trace_of_summary
from app.advisor.time_model.fitting import ratio_spread
from app.advisor.time_model.intervals import deviation
from app.advisor.time_model.single_steps import SingleStep, single_steps
from app.advisor.time_model.step_estimate import (
    StepEstimate,
    compare,
    remembered_ratio_spread,
    shared_spread,
    weakest,
)
from app.advisor.time_model.step_time import PlanTime, times_of_plans
from probes.measurement import Measurement, Overheads
from probes.profile import Profile
from probes.workload.description import Plan
from tests.app.advisor.build import ONE, TWO, TWO_BF16, a_measurement, a_workload
from tests.app.advisor.machine import GPU, a_profile
from tests.app.advisor.test_crowding import CALM, CROWD, a_machine

WORKLOAD = a_workload()


def times(rows: list[Measurement], profile: Profile | None, *plans: Plan, crowd: Crowd | None = None) -> list[PlanTime]:
    found = times_of_plans(plans, profile, trace_of_summary(WORKLOAD), rows, WORKLOAD, crowd)
    return [found[plan.key] for plan in plans]


def seconds(time: PlanTime, batch_size: int) -> Interval:
    found = time.seconds(batch_size, "pageable")
    assert found is not None
    return found


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


def test_nothing_jumps_between_one_batch_and_the_next() -> None:
    """A plan that took longer the larger the batch, against what was told: a line through both would leave the told
    curve at twice the larger one, and where one plan overtakes another would be told to lie there."""
    (alone,) = times([], a_profile(), ONE)
    told = {size: seconds(alone, size).median for size in (4, 16)}
    (time,) = times([a_measurement(ONE, 4, told[4]), a_measurement(ONE, 16, 2 * told[16])], a_profile(), ONE)
    steps = [seconds(time, size).median for size in range(16, 70)]
    assert all(after == pytest.approx(before, rel=0.1) for before, after in itertools.pairwise(steps))


def test_between_two_that_ran_the_predicted_curve_bends_the_line() -> None:
    (alone,) = times([], a_profile(), ONE)
    ran = [a_measurement(ONE, size, 2 * seconds(alone, size).median) for size in (1, 4096)]
    (line,), (told,) = times(ran, None, ONE), times(ran, a_profile(), ONE)
    curve = 2 * seconds(alone, 64).median
    assert seconds(told, 64).median == pytest.approx(math.sqrt(curve * seconds(line, 64).median))
    estimate = told.at(64, "pageable")
    assert estimate is not None
    assert (estimate.basis, estimate.rests_on_prediction) == ("probed", False)


def test_the_further_from_what_ran_the_less_is_known() -> None:
    (time,) = times([a_measurement(ONE, 16, 1.0)], a_profile(), ONE)
    spreads = [deviation(estimate.seconds) for batch in (16, 32, 64, 128) if (estimate := time.at(batch, "pageable"))]
    assert spreads == sorted(spreads)
    assert len(set(spreads)) > 2


def test_a_measured_plan_corrects_the_predictions_of_its_device_by_half_and_no_other() -> None:
    """And what is corrected by much is known no better than that."""
    plain = times([], a_profile((ONE, TWO, GPU)), ONE, TWO, GPU)
    seconds = plain[0].at(16, "pageable")
    assert seconds is not None
    rows = [a_measurement(ONE, 16, 2 * seconds.seconds.median)]
    corrected = times(rows, a_profile((ONE, TWO, GPU)), ONE, TWO, GPU)
    for before, after, factor in zip(plain[1:], corrected[1:], (2.0**0.5, 1.0), strict=True):
        old, new = before.at(16, "pageable"), after.at(16, "pageable")
        assert old is not None
        assert new is not None
        assert new.seconds.median == pytest.approx(factor * old.seconds.median)
        assert (deviation(new.seconds) > deviation(old.seconds)) == (factor > 1)


def test_several_plans_that_are_off_alike_correct_more_and_none_by_more_than_ten_times() -> None:
    plans = (ONE, replace(ONE, precision="bf16"), replace(TWO, precision="bf16"), TWO)
    plain = times([], a_profile(plans), *plans)
    before = [seconds(time, 16).median for time in plain]
    for off, moved in ((2.0, 2.0**0.75), (1000.0, 10.0**0.75)):
        rows = [a_measurement(plan, 16, off * took) for plan, took in zip(plans[:3], before, strict=False)]
        corrected = times(rows, a_profile(plans), *plans)
        assert seconds(corrected[3], 16).median == pytest.approx(moved * before[3])


def test_what_measured_plans_teach_another_fades_with_the_batch_as_their_own_errors_do() -> None:
    """Else plans would be told to cross far from what ran by nothing but this."""
    plans = (ONE, replace(ONE, precision="bf16"), replace(TWO, precision="bf16"), TWO)
    plain = times([], a_profile(plans), *plans)
    rows = [a_measurement(time.plan, 16, 1.5 * seconds(time, 16).median) for time in plain[:3]]
    told = times(rows, a_profile(plans), *plans)
    for batch, left in ((16, 1.0), (128, 0.5), (1024, 0.25), (2, 0.5)):
        moved = [
            seconds(after, batch).median / seconds(before, batch).median
            for before, after in zip(plain, told, strict=True)
        ]
        assert moved[3] == pytest.approx(1.5 ** (0.75 * left))
        assert moved[:3] == pytest.approx([1.5**left] * 3)


def a_first_step(plan: Plan, batch_size: int, took: float) -> Measurement:
    return replace(a_measurement(plan, batch_size, took), steps=1, startup_seconds=None)


def test_one_sample_after_the_first_steps_is_a_measurement() -> None:
    """A step of seconds, for which `quick` has the time of a first, a second and a timed one."""
    sampled = replace(a_measurement(ONE, 16, 1.0), steps=1, startup_seconds=0.2)
    (one,) = times([sampled], None, ONE)
    found = one.at(16, "pageable")
    assert found is not None
    assert (found.basis, found.seconds.median) == ("measured", 1.0)


def test_a_first_step_counts_until_more_was_measured() -> None:
    begun, later = a_first_step(ONE, 16, 1.9), replace(a_measurement(ONE, 16, 0.5), data="resident")
    assert single_steps([begun]) == {16: SingleStep(1.9)}
    assert single_steps([begun, later]) == {}
    assert single_steps([later, a_first_step(ONE, 32, 2.0)]) == {32: SingleStep(2.0)}


def test_a_first_step_says_no_more_than_that_others_take_no_longer() -> None:
    """36 ms of a model of 15 parameters told 155 ms of it on two threads, and 3.3 s in bf16."""
    plain = times([], a_profile((ONE, TWO)), ONE, TWO)
    told = seconds(plain[0], 16).median
    for first in (1000 * told, 1.01 * told):
        one, two = times([a_first_step(ONE, 16, first)], a_profile((ONE, TWO)), ONE, TWO)
        assert one.at(16, "pageable").basis == "predicted"  # type: ignore[union-attr]
        assert seconds(one, 16).high <= first
        assert seconds(two, 16) == seconds(plain[1], 16)
    (one,) = times([a_first_step(ONE, 16, 0.5 * told)], a_profile((ONE,)), ONE)
    assert seconds(one, 16).median == seconds(one, 16).high == 0.5 * told
    assert seconds(one, 16).low < 0.2 * told  # the steps after it may take a third of it
    (one,) = times([a_first_step(ONE, 16, 30 * told + 1)], a_profile((ONE,)), ONE)
    assert seconds(one, 16).low >= 10 * told  # three times as long as those after it, and not thirty
    assert seconds(one, 32) == seconds(plain[0], 32)


def test_without_a_profile_a_first_step_is_all_there_is_of_a_cpu_and_nothing_of_a_device() -> None:
    one, gpu = times([a_first_step(ONE, 16, 1.9), a_first_step(GPU, 16, 1.9)], None, ONE, GPU)
    assert one.at(16, "pageable") == StepEstimate(Interval(1.9, pytest.approx(0.6), 1.9), "probed")
    assert gpu.at(16, "pageable") is None
    (one,) = times([a_first_step(ONE, 16, 0.05)], None, ONE)
    assert one.at(16, "pageable") is None


def test_another_process_may_differ_more_where_several_threads_run() -> None:
    one, two = times([a_measurement(ONE, 32, 0.01), a_measurement(TWO, 32, 0.01)], None, ONE, TWO)
    single, several = (time.at(32, "pageable") for time in (one, two))
    assert single is not None
    assert several is not None
    assert several.seconds.high / several.seconds.median > single.seconds.high / single.seconds.median > 1.05
    assert several.within == pytest.approx(single.within)  # so which is faster is known as well as before


def test_on_a_device_another_process_differs_most() -> None:
    """Its steps hang on the host that issues them."""
    two, gpu = times([a_measurement(TWO, 32, 0.01), a_measurement(GPU, 32, 0.01)], None, TWO, GPU)
    assert seconds(gpu, 32).high / seconds(gpu, 32).median > seconds(two, 32).high / seconds(two, 32).median > 1.08


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


def test_what_two_plans_err_by_is_told_once_of_each_pair() -> None:
    errors = {(name, 1): error for name, error in zip("abcd", (0.4, -0.3, 0.2, -0.4), strict=True)}
    opposite = {step: -error for step, error in errors.items()}
    spread = remembered_ratio_spread()
    told = spread(errors, opposite)
    assert told == ratio_spread(errors, opposite)
    assert spread(errors, errors) == ratio_spread(errors, errors) != told
    errors.clear()  # it is not asked again
    assert spread(errors, opposite) == told


def test_the_weakest_basis_is_the_one_that_counts() -> None:
    assert weakest(["measured", "predicted", "probed"]) == "predicted"
    assert weakest([]) == "assumed"


def test_measurements_of_different_hours_are_told_apart_as_those_of_different_processes() -> None:
    """A twelfth apart: within a run that is plain; an hour later it may be what others did meanwhile."""

    def compared(later: float | None) -> int | None:
        rows = [
            a_measurement(ONE, 16, 1.0, 0.004, measured_at=None if later is None else 1e9),
            a_measurement(TWO, 16, 0.92, 0.004, measured_at=None if later is None else 1e9 + later),
        ]
        one, two = (time.at(16, "pageable") for time in times(rows, None, ONE, TWO))
        return compare(one, two)

    assert compared(None) == compared(30.0) == 1
    assert compared(3600.0) == 0


def test_what_processes_differ_by_is_nothing_that_a_card_and_a_cpu_share() -> None:
    """A CPU's heap and a card's queue have nothing in common, though both were measured in one run."""
    rows = [a_measurement(plan, 16, took, 0.004) for plan, took in ((ONE, 1.0), (TWO, 0.92), (GPU, 0.92))]
    one, two, card = (time.at(16, "pageable") for time in times(rows, None, ONE, TWO, GPU))
    assert compare(one, two) == 1
    assert compare(one, card) == 0
    assert one is not None
    assert card is not None
    told = shared_spread(one, card)
    assert told is not None
    assert told >= math.hypot(one.between, card.between) > 0.15


def breakdown_on_a_device(busy: float | None, data: str = "resident", launch: float = 0.0035) -> Breakdown:
    overheads = Overheads(
        transfer_seconds=0.001, launch_seconds=launch, compute_seconds=0.006 - launch, device_busy=busy
    )
    rows = [a_measurement(GPU, 16, 0.006, data=data, overheads=overheads)]
    (time,) = times(rows, None, GPU)
    return time.breakdown(16, data)


def test_a_device_that_is_busy_all_the_time_is_the_limit_however_long_issuing_takes() -> None:
    """Issuing onto an idle queue takes more than half of the step, while the device computes."""
    busy = breakdown_on_a_device(0.97)
    assert busy.launch == 0
    assert busy.compute == pytest.approx(0.006)


def test_a_device_that_waits_for_the_host_computes_for_as_long_as_it_is_busy() -> None:
    waiting = breakdown_on_a_device(0.5)
    assert waiting.compute == pytest.approx(0.003)
    assert waiting.launch == pytest.approx(0.003)
    fed = breakdown_on_a_device(0.5, "pageable")
    assert fed.launch == pytest.approx(0.002)
    assert sum(part or 0.0 for part in (fed.transfer, fed.launch, fed.compute)) == pytest.approx(0.006)


@pytest.mark.parametrize(("busy", "launch"), [(None, 0.0001), (0.5, 0.0001), (0.97, 0.0001), (0.5, 0.004)])
def test_a_copy_that_took_longer_by_itself_than_the_step_with_it_is_all_of_the_step(
    busy: float | None, launch: float
) -> None:
    parts = Overheads(0.0072, launch_seconds=launch, compute_seconds=0.0002, device_busy=busy, synchronize_seconds=1e-4)
    workload = a_workload(log_every=1)
    rows = [a_measurement(GPU, 16, 0.006, data="pageable", overheads=parts)]
    told = times_of_plans([GPU], None, trace_of_summary(workload), rows, workload)[GPU.key].breakdown(16, "pageable")
    found = [told.transfer, told.launch, told.compute, told.synchronize]
    assert all(part is not None and part >= 0 for part in found)
    assert sum(part or 0.0 for part in found) == pytest.approx(0.006)


def test_where_nobody_could_tell_how_busy_a_device_was_issuing_is_as_it_was_measured_and_computing_unknown() -> None:
    """Issuing onto an idle queue took more than half of the step: of the rest nobody knows what it was."""
    unknown = breakdown_on_a_device(None)
    assert unknown.launch == pytest.approx(0.0035)
    assert unknown.compute is None


def test_where_issuing_takes_the_whole_step_the_device_waits_for_it_whatever_it_computes() -> None:
    told = breakdown_on_a_device(None, launch=0.0058)
    assert (told.launch, told.compute) == (pytest.approx(0.0058), pytest.approx(0.0002))


def test_where_nobody_could_tell_a_device_that_takes_most_of_the_step_is_the_limit() -> None:
    """Issuing is not added to it: the host has long been waiting."""
    unknown = breakdown_on_a_device(None, launch=0.0012)
    assert unknown.launch == 0
    assert unknown.compute == pytest.approx(0.006)


@pytest.mark.parametrize(
    ("then", "now", "lasts"),
    [(1.6, 1.2, False), (2.0, 0.0, False), (1.6, 1.6, True), (1.6, 1.55, True)],
    ids=["fewer", "gone", "as many", "hardly fewer"],
)
def test_a_measurement_in_a_crowd_tells_of_its_own_batch_alone_beside_predictions_once_there_are_fewer(
    then: float, now: float, *, lasts: bool
) -> None:
    """It turned the order of two plans round at the next batch, of which the other had run at none."""
    crowd = crowd_of(a_machine(replace(CALM, busy_fraction=now / 2)))
    one, two = (a_measurement(plan, 8, 4.0, others_cores=then) for plan in (ONE, TWO))
    foretold, _ = times([], a_profile(), ONE, TWO, crowd=crowd)
    beside_a_prediction, _ = times([one], a_profile(), ONE, TWO, crowd=crowd)
    beside_its_like, _ = times([one, two], a_profile(), ONE, TWO, crowd=crowd)
    for time in (beside_a_prediction, beside_its_like):
        assert (seconds(time, 16) == seconds(foretold, 16)) is not lasts
    assert seconds(beside_a_prediction, 8) == seconds(beside_its_like, 8)
    assert seconds(beside_a_prediction, 8).median > 2.0
    if now == 0.0:  # then it may be as quick as foretold
        assert seconds(beside_a_prediction, 8).low <= seconds(foretold, 8).low


def test_without_others_a_step_takes_no_less_than_is_predicted_nor_more_than_it_took_among_them() -> None:
    """A twentieth of what a small step took was below what dispatching alone takes."""
    crowd = crowd_of(a_machine(CALM))
    (foretold,) = times([], a_profile(), TWO, crowd=crowd)
    told = seconds(foretold, 8)
    for took in (0.5 * told.median, 2 * told.median, 100 * told.median):
        (time,) = times([a_measurement(TWO, 8, took, others_cores=2.0)], a_profile(), TWO, crowd=crowd)
        found = seconds(time, 8)
        assert found.low == pytest.approx(min(told.low, took), rel=0.3)
        assert found.low <= found.median <= found.high
        assert found.high > took


def test_what_was_measured_on_a_calm_machine_is_carried_where_a_nearer_batch_met_others() -> None:
    crowd = crowd_of(a_machine(CALM))
    calm, among = a_measurement(ONE, 64, 6.4), a_measurement(ONE, 8, 4.0, others_cores=1.6)
    by_calm, _ = times([calm], a_profile(), ONE, TWO, crowd=crowd)
    by_both, _ = times([calm, among], a_profile(), ONE, TWO, crowd=crowd)
    for batch_size in (16, 40):
        assert seconds(by_both, batch_size) == seconds(by_calm, batch_size)


@pytest.mark.parametrize(("batch_size", "contained"), [(64, 1.0), (8, 0.5), (1, 0.25)])
def test_slow_blocks_are_carried_as_far_as_the_rest_of_what_was_measured(batch_size: int, contained: float) -> None:
    """What others do besides is a guess, and was counted on top of all of what they had done at another batch."""
    row = a_measurement(TWO, 64, 4.0, others_cores=2.0, slow_share=0.7, slowdown=6.0)
    alone, among = (times([row], a_profile(), TWO, crowd=crowd)[0] for crowd in (None, crowd_of(a_machine(CROWD))))
    calm, told, guessed = seconds(alone, batch_size), seconds(among, batch_size), 20 ** (1 - contained)
    assert told.low == calm.low
    assert told.median == pytest.approx(calm.median * 4.5**contained * guessed**0.5)
    assert told.high == pytest.approx(calm.high * 6**contained * guessed)


def in_a_spell(plan: Plan, batch_size: int, took: float) -> Measurement:
    """Whose samples lie far apart, on cores that seemed calm."""
    return a_measurement(plan, batch_size, took, 0.9, slow_share=0.0, slowdown=1.0)


def test_what_met_a_spell_may_take_what_is_predicted_and_is_ranked_by_its_worst() -> None:
    (alone,) = times([], a_profile(), TWO)
    foretold = seconds(alone, 16)
    (time,) = times([in_a_spell(TWO, 16, 40 * foretold.median)], a_profile(), TWO)
    told = time.at(16, "pageable")
    assert told is not None
    assert (told.basis, told.relieved) == ("probed", True)
    assert (told.seconds.low, told.seconds.median) == (foretold.low, foretold.median)
    assert told.seconds.high > 40 * foretold.median
    (unforetold,) = times([in_a_spell(TWO, 16, 40 * foretold.median)], None, TWO)
    measured = unforetold.at(16, "pageable")
    assert measured is not None
    assert (measured.basis, measured.relieved) == ("measured", False)


def test_what_met_a_spell_tells_of_no_other_batch_and_of_no_other_plan() -> None:
    untaught = times([], a_profile(), ONE, TWO)
    spell = in_a_spell(TWO, 16, 40 * seconds(untaught[1], 16).median)
    one, two = times([spell], a_profile(), ONE, TWO)
    assert seconds(two, 64) == seconds(untaught[1], 64)
    assert seconds(one, 16) == seconds(untaught[0], 16)
