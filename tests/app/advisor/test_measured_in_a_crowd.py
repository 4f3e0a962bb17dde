"""What was measured while others held cores: whose time it is while they stay, and once they have left."""

from dataclasses import replace

import pytest

from app.advisor import Request, recommend
from app.advisor.crowding import WORST_OF_MANY
from app.advisor.recommendation import Interval, Option
from probes.hardware import Load
from probes.measurement import Measurement, Overheads
from tests.app.advisor.build import ONE, ONE_BF16, TWO, a_measurement, a_workload
from tests.app.advisor.machine import a_profile
from tests.app.advisor.test_crowding import CALM, CROWD, HALF, a_machine, answer, codes


def in_a_crowd(two: float, **changes: object) -> list[Measurement]:
    return [a_measurement(plan, 64, seconds, others_cores=2.0, **changes) for plan, seconds in ((ONE, 1.0), (TWO, two))]


def test_what_was_measured_in_a_crowd_is_no_calm_machines_time() -> None:
    """Two threads took three times as long as one while others held both cores; these have left, and nobody can say
    which is faster."""
    found = answer(CALM, [replace(row, batch_size=size) for row in in_a_crowd(3.0) for size in (32, 64)])
    told = {option.plan.key: option for option in found.options if option.step_seconds is not None}
    assert {option.basis for option in told.values()} == {"probed"}
    assert told[TWO.key].step_seconds is not None
    assert told[TWO.key].step_seconds.low < 0.6 < told[TWO.key].step_seconds.high
    (crossover,) = (row for row in found.crossovers if (row.start, row.to) == (ONE, TWO))
    assert crossover.kind == "undecided"
    busy = answer(replace(CALM, busy_fraction=1.0), in_a_crowd(3.0))
    assert busy.recommended == ONE
    assert {option.basis for option in busy.options if option.step_seconds is not None} == {"measured"}


@pytest.mark.parametrize(
    ("then", "now", "low", "high"),
    [
        (2.0, 1.0, 5.0, 15.1),  # it met all of what there is now
        (0.0, 1.0, 5.0, 15.1 * WORST_OF_MANY),
        (2.0, 0.0, 5.0 / WORST_OF_MANY, 15.1),
    ],
    ids=["in the crowd", "before it", "after it"],
)
def test_a_first_step_bounds_a_time_by_the_crowd_that_it_met(then: float, now: float, low: float, high: float) -> None:
    first = replace(a_measurement(TWO, 64, 15.1, others_cores=then), steps=1, startup_seconds=None)
    found = answer(replace(CALM, busy_fraction=now), [first])
    (two,) = (option for option in found.options if option.plan == TWO)
    assert two.step_seconds is not None
    assert (two.step_seconds.low, two.step_seconds.high) == pytest.approx((low, high))
    assert two.crowded is (now > then)


def test_a_first_step_in_the_crowd_bounds_a_time_that_rests_on_a_calm_one() -> None:
    calm = a_measurement(TWO, 16, 4.0, others_cores=0.0)
    first = replace(a_measurement(TWO, 64, 15.1, others_cores=2.0), steps=1, startup_seconds=None)
    found = answer(replace(CALM, busy_fraction=1.0), [calm, first])
    (two,) = (option for option in found.options if option.plan == TWO)
    assert two.step_seconds is not None
    assert two.step_seconds.high == pytest.approx(15.1)


@pytest.mark.parametrize("others", [2.0, 1.7])  # of which one leaves half a core for a thread, as background aside
def test_a_measurement_in_a_crowd_corrects_no_prediction(others: float) -> None:
    """While it stays no more than once it has left: what it does to the others is told by what it does to any."""
    request = Request(a_workload(64))
    rows = [a_measurement(ONE, 64, 50.0, others_cores=others)]

    def bf16(load: Load, measured: list[Measurement]) -> Interval | None:
        options = recommend(a_machine(load), a_profile(), None, measured, request).options
        return next(option.step_seconds for option in options if option.plan == ONE_BF16)

    for load in (CALM, HALF, CROWD):
        assert bf16(load, rows) == bf16(load, [])
    assert bf16(CALM, [replace(rows[0], others_cores=0.0)]) != bf16(CALM, [])


def test_what_met_no_calm_cores_is_no_calm_machines_time_though_the_cores_pace_was_read() -> None:
    found = answer(CALM, in_a_crowd(3.0, slow_share=1.0))
    (two,) = (option for option in found.options if option.plan == TWO)
    assert two.basis == "probed"
    assert two.step_seconds is not None
    assert two.step_seconds.low < 0.6
    (reason,) = (reason for reason in found.reasons if reason.code == "slow-cores")
    assert "what steps took and what they would take without them" in reason.text


def test_a_calm_measurement_counts_again_once_the_crowd_of_a_later_one_has_left() -> None:
    calm = a_measurement(TWO, 64, 0.6, others_cores=0.0, slow_share=0.0, slowdown=1.0)
    rows = [calm, a_measurement(TWO, 64, 5.0, others_cores=2.0, slow_share=1.0)]

    def told(load: Load) -> tuple[str | None, float]:
        (two,) = (option for option in answer(load, rows).options if option.plan == TWO)
        assert two.step_seconds is not None
        return two.basis, two.step_seconds.median

    assert told(CALM) == ("measured", pytest.approx(0.6))
    assert "slow-cores" not in codes(answer(CALM, rows))  # what the time rests on met none
    assert told(CROWD) == ("measured", pytest.approx(5.0))


PARTS = Overheads(transfer_seconds=0.0, launch_seconds=0.1, synchronize_seconds=0.0, compute_seconds=0.5)
# One thread's blocks were slow now and then, two threads' mostly, and by much.
AMONG_OTHERS = [
    a_measurement(ONE, 64, 1.0, others_cores=2.0, slow_share=0.3, slowdown=1.8),
    a_measurement(TWO, 64, 0.6, others_cores=2.0, slow_share=0.7, slowdown=6.0, overheads=PARTS),
]


def test_while_the_crowd_stays_a_plan_is_ranked_by_what_it_took_among_them() -> None:
    """By calm blocks two threads are the faster, and took 2.7 s a step on average in that very measurement."""
    found = answer(CROWD, AMONG_OTHERS)
    told = {option.plan.key: option for option in found.options if option.step_seconds is not None}
    assert found.recommended == ONE
    assert not any(option.crowded for option in told.values())
    for plan, mean, worst in ((ONE, 1.24, 1.8), (TWO, 2.7, 3.6)):
        seconds = told[plan.key].step_seconds
        assert seconds is not None
        assert seconds.median == pytest.approx(mean)
        assert seconds.low < mean < worst < seconds.high
    parts = told[TWO.key].breakdown_seconds
    assert (parts.launch or 0.0) + (parts.compute or 0.0) == pytest.approx(2.7)
    assert "slow-cores" not in codes(found)  # what it says is in the times
    (reason,) = (reason for reason in found.reasons if reason.code == "crowded")
    assert reason.text.startswith("This machine is crowded: others hold 2.0 of 2 cores")
    assert "and contain it" in reason.text


def test_once_the_crowd_has_left_the_calm_blocks_count_and_who_slowed_the_others_is_said() -> None:
    found = answer(CALM, AMONG_OTHERS)
    assert found.recommended == TWO
    (two,) = (option for option in found.options if option.plan == TWO)
    assert two.step_seconds is not None
    assert two.step_seconds.median == pytest.approx(0.6)
    (reason,) = (reason for reason in found.reasons if reason.code == "slow-cores")
    assert "while others held 2.0 cores of this machine" in reason.text
    assert "no counter" not in reason.text


def test_of_a_crowd_that_is_smaller_now_less_is_met_and_of_a_larger_one_the_rest_is_guessed() -> None:
    """Two threads lacked a whole core then and lack 0.71 of one now; the other way round 0.29 are a guess."""

    def two(load: Load, others_then: float) -> Option:
        rows = [replace(row, others_cores=others_then) for row in AMONG_OTHERS]
        return next(option for option in answer(load, rows).options if option.plan == TWO)

    smaller, larger = two(HALF, 2.0), two(CROWD, 1.0)
    assert smaller.step_seconds is not None
    assert larger.step_seconds is not None
    assert smaller.step_seconds.median == pytest.approx(0.6 * 4.5**0.71)
    assert larger.step_seconds.median == pytest.approx(0.6 * 4.5 * WORST_OF_MANY ** (0.29 / 2))
    assert (smaller.crowded, larger.crowded) == (False, True)
