"""One sample of a step that was taken while others held cores says how long it takes at most, and little more."""

from dataclasses import replace

import pytest

from app.advisor import Recommendation, Request, recommend
from app.advisor.recommendation import Option
from probes.hardware import Cpu, Load
from probes.measurement import Measurement, Timing
from probes.workload.description import Plan, Workload
from tests.app.advisor.build import ONE, ONE_BF16, TWO, a_measurement, a_summary, a_survey
from tests.app.advisor.machine import a_profile

CALM = Load(steal_fraction=0.0, busy_fraction=0.02)
CROWD = replace(CALM, busy_fraction=0.86)  # 1.7 of two cores
MACHINE = a_survey()
# Told to take 0.1 s on one thread, and less on two: short steps, of which one sample is none.
WORKLOAD = Workload(a_summary(parameters=1e5, flops_per_sample=2e7, activation_bytes_per_sample=5e5), 64)


def answer(load: Load, rows: list[Measurement], *, calibrated: bool = False, cpu: Cpu = MACHINE.cpu) -> Recommendation:
    request = Request(WORKLOAD, "fp32")
    return recommend(replace(MACHINE, cpu=cpu, load=load), a_profile() if calibrated else None, None, rows, request)


def option_of(found: Recommendation, plan: Plan) -> Option:
    return next(option for option in found.options if option.plan == plan)


def one_sample(plan: Plan, seconds: float) -> Measurement:
    return a_measurement(
        plan, 64, seconds, step=Timing.from_samples([seconds]), steps=1, startup_seconds=0.0, others_cores=1.73
    )


def a_run(one: float, two: float) -> list[Measurement]:
    return [one_sample(ONE, one), one_sample(TWO, two)]


@pytest.mark.parametrize("load", [CROWD, CALM], ids=["they are still there", "they have left"])
def test_what_a_step_takes_without_others_lies_in_what_one_sample_among_them_says(load: Load) -> None:
    """The sample took 19.4 ms, 40 others 1.6 ms less than a minute later."""
    found = answer(load, a_run(0.0194, 0.101))
    for plan, sample, truth in ((ONE, 0.0194, 0.0016), (TWO, 0.101, 0.006)):
        option = option_of(found, plan)
        assert option.basis == "probed"
        assert (option.crowded, option.relieved) == (load is CROWD, load is CALM)
        assert option.step_seconds is not None
        assert option.step_seconds.low < truth < sample < option.step_seconds.high
        assert (option.step_seconds.median == pytest.approx(sample)) is (load is CROWD)
        assert option.note is not None
        assert "while others held 1.7 cores" in option.note
    assert found.recommended == ONE  # as they took turns beside the same others
    assert found.confidence is not None
    assert found.confidence < 1.0


def test_a_prediction_that_one_sample_among_others_leaves_possible_is_told() -> None:
    plain = [option_of(answer(CALM, [], calibrated=True), plan) for plan in (ONE, TWO)]
    one, two = (option.step_seconds.median for option in plain if option.step_seconds is not None)
    told = answer(CALM, a_run(4 * one, 15 * two), calibrated=True)
    assert replace(option_of(told, TWO), note=None) == plain[1]
    # One thread, which shared its core for a minute, takes more than half of that.
    longer = option_of(told, ONE)
    assert longer.basis == "probed"
    assert longer.step_seconds is not None
    assert 2 * one < longer.step_seconds.low < 4 * one < longer.step_seconds.high


def test_of_a_plan_that_took_one_sample_in_this_very_crowd_that_is_the_best_guess() -> None:
    """It was told longer than it took, by a prediction as if nobody had run it."""
    plain = option_of(answer(CALM, [], calibrated=True), TWO)
    assert plain.step_seconds is not None
    took = 3 * plain.step_seconds.median
    found = answer(CROWD, [one_sample(TWO, took)], calibrated=True)
    option = option_of(found, TWO)
    seconds = option.step_seconds
    assert seconds is not None
    assert seconds.low == plain.step_seconds.low
    assert seconds.median == pytest.approx(took)
    assert (option.basis, option.crowded) == ("probed", True)
    assert seconds.high > 5 * took  # it may have met none of them


@pytest.mark.parametrize("calibrated", [True, False])
@pytest.mark.parametrize("load", [CROWD, replace(CALM, busy_fraction=1.0)], ids=["as many", "more"])
def test_one_sample_among_others_goes_before_no_plan_that_was_measured_there(load: Load, *, calibrated: bool) -> None:
    """A lucky one of two threads was recommended, and said to make more threads faster."""
    rows = [a_measurement(ONE, 64, 0.1, others_cores=1.73), one_sample(TWO, 0.09)]
    found = answer(load, rows, calibrated=calibrated)
    assert found.recommended == ONE
    assert "preferred to the CPU with 2 threads while others hold cores" in found.verdict
    reasons = {reason.code: reason for reason in found.reasons}
    assert not reasons.keys() & {"threads-help", "threads-hurt", "threads-equal", "predicted"}
    assert TWO.label in reasons["crowded"].evidence["plans"]


def test_one_sample_among_others_who_have_left_goes_before_no_plan_that_was_measured_without_them() -> None:
    rows = [a_measurement(ONE, 64, 0.08, others_cores=0.0), one_sample(TWO, 0.12)]
    found = answer(CALM, rows)
    assert found.recommended == ONE
    assert option_of(found, TWO).relieved
    assert "times as fast" not in found.verdict


def test_of_two_plans_of_one_sample_each_no_ratio_is_told() -> None:
    rows = [one_sample(ONE, 0.0194), one_sample(ONE_BF16, 0.0155)]
    found = recommend(replace(MACHINE, load=CROWD), None, None, rows, Request(WORKLOAD))
    assert found.recommended == ONE_BF16
    assert "likely less than the CPU with one thread takes while others hold cores" in found.verdict
    assert "precision-gain" not in {reason.code for reason in found.reasons}


def test_one_sample_of_a_long_step_has_had_all_turns_of_others() -> None:
    """Effort quick takes no second one of it, however often it is asked."""
    options = answer(CROWD, a_run(21.2, 22.0), calibrated=True).options
    assert {(option.basis, option.note) for option in options if option.step_seconds is not None} == {
        ("measured", None)
    }


@pytest.mark.parametrize("inside", [2.0, 0.0], ids=["they are still there", "they have left"])
def test_one_sample_among_others_of_whom_nobody_knows_where_they_were_is_no_measurement(inside: float) -> None:
    """On two of 96 CPUs they may have been on those two."""
    cpu = Cpu(logical_cores=96, usable_cores=2.0, usable_cores_limit="affinity", allowed_logical_cores=2)
    load = replace(CALM, busy_fraction=inside / 96, allowed_others_cores=inside)
    option = option_of(answer(load, a_run(0.0194, 0.101), cpu=cpu), ONE)
    assert option.step_seconds is not None
    assert option.step_seconds.low < 0.0016 < 0.0194 < option.step_seconds.high
    assert option.crowded is not option.relieved


def test_one_sample_among_others_does_not_take_the_place_of_what_met_calm_cores() -> None:
    calm = [a_measurement(plan, 64, 0.5, others_cores=0.0, slow_share=0.0, slowdown=1.0) for plan in (ONE, TWO)]
    assert answer(CALM, [*calm, *a_run(0.6, 0.8)]) == answer(CALM, calm)


@pytest.mark.parametrize("load", [CROWD, CALM], ids=["they are still there", "they have left"])
def test_of_a_first_step_among_others_who_have_left_that_is_said(load: Load) -> None:
    option = option_of(answer(load, [replace(one_sample(TWO, 1.0), startup_seconds=None)]), TWO)
    assert option.note is not None
    assert "Only its first step ran, which took 1" in option.note
    assert option.relieved is (load is CALM)
    assert ("while others held 1.7 cores, who hold fewer now" in option.note) is option.relieved


def test_of_plans_that_took_turns_all_are_told_as_without_others_or_none() -> None:
    """One thread hardly lacks a core where two lack a whole one; told as it was, it would be the slower for that."""
    rows = [a_measurement(plan, 64, seconds, others_cores=1.73) for plan, seconds in ((ONE, 0.0198), (TWO, 0.0437))]
    found = answer(CALM, rows)
    for plan in (ONE, TWO):
        option = option_of(found, plan)
        assert option.basis == "probed"
        assert option.note is not None
        assert "who hold fewer now" in option.note
    assert "times as fast" not in found.verdict
    assert "preferred to the CPU with 2 threads, by times that others may have lengthened" in found.verdict
    assert not {reason.code for reason in found.reasons} & {"threads-help", "threads-hurt", "threads-equal"}
    still = answer(CROWD, rows)
    assert {option_of(still, plan).basis for plan in (ONE, TWO)} == {"measured"}


def test_of_a_first_step_among_others_who_are_as_many_now_nobody_is_said_to_have_left() -> None:
    """They may have been on its own CPUs then; they hold as many of the machine's."""
    cpu = Cpu(logical_cores=64, usable_cores=2.0, usable_cores_limit="affinity", allowed_logical_cores=2)
    load = replace(CALM, busy_fraction=4.0 / 64, allowed_others_cores=0.0)
    first = replace(one_sample(TWO, 0.4), startup_seconds=None, others_cores=4.0)
    option = option_of(answer(load, [first], cpu=cpu), TWO)
    assert not option.relieved
    assert option.note is not None
    assert "fewer now" not in option.note


@pytest.mark.parametrize("others", [0.02, None])
def test_a_first_step_is_not_said_to_have_met_others_who_were_beside_its_neighbours(others: float | None) -> None:
    """What is told of it rests on batches that ran beside others who have left; itself it met nobody, or nobody knows
    whom."""
    beside = [a_measurement(ONE, size, size * 1e-4, others_cores=1.73) for size in (16, 256)]
    first = a_measurement(ONE, 64, 0.5, step=Timing.from_samples([0.5]), steps=1, others_cores=others)
    assert first.is_first_step
    option = option_of(answer(CALM, [*beside, first]), ONE)
    assert option.relieved
    assert "Only its first step" not in (option.note or "")
    assert "while others held 1.7 cores" in (option.note or "")
