"""What was measured among others is no calm machine's time, wherever it is told and whatever the cores' pace said."""

from dataclasses import replace

import pytest

from app.advisor import Request, recommend
from app.advisor.recommendation import Option
from probes.measurement import Measurement
from tests.app.advisor.build import ONE, ONE_BF16, TWO, TWO_BF16, a_measurement, a_workload
from tests.app.advisor.machine import a_profile
from tests.app.advisor.test_crowding import CALM, CROWD, HALF, a_machine, answer, codes
from tests.app.advisor.test_measured_in_a_crowd import in_a_crowd


@pytest.mark.parametrize(("slow_share", "slowdown"), [(0.0, 1.0), (0.5, 2.0)], ids=["all quick", "half"])
def test_how_quick_the_cores_were_in_a_crowd_says_nothing_of_who_took_them(slow_share: float, slowdown: float) -> None:
    """A thread that waits for its core does not read their pace: two samples of 30 and 88 ms counted as a calm
    machine's, where a step takes 0.4, and as the proof that more threads are slower."""
    found = answer(CALM, in_a_crowd(3.0, slow_share=slow_share, slowdown=slowdown))
    assert found.recommended == ONE
    told = [option for option in found.options if option.step_seconds is not None]
    assert {(option.basis, option.relieved) for option in told} == {("probed", True)}
    assert not codes(found) & {"threads-help", "threads-hurt", "threads-equal"}


def test_a_guess_of_what_a_step_takes_without_others_goes_before_no_time_that_is_known() -> None:
    """Two threads took twice as long as one among others, and may take a tenth of that now."""
    found = answer(CALM, [a_measurement(ONE, 64, 1.0, others_cores=0.0), a_measurement(TWO, 64, 2.0, others_cores=2.0)])
    two = next(option for option in found.options if option.plan == TWO)
    assert two.step_seconds is not None
    assert two.step_seconds.median < 1.0
    assert found.recommended == ONE
    assert "preferred to the CPU with 2 threads, by times that others may have lengthened" in found.verdict


def test_a_step_that_took_no_longer_among_others_than_is_predicted_is_told_as_it_was_measured() -> None:
    """It was told by the low end of its interval, as without them it may take no less."""

    def told(*rows: Measurement) -> tuple[Option, str]:
        found = recommend(a_machine(CALM), a_profile(), None, rows, Request(a_workload()))
        slow = [reason.text for reason in found.reasons if reason.code == "slow-cores"]
        return next(option for option in found.options if option.plan == TWO), "".join(slow)

    foretold = told()[0].step_seconds
    assert foretold is not None
    for share, is_relieved in ((0.9, False), (4.0, True)):
        took = share * foretold.low
        two, slow = told(a_measurement(TWO, 16, took, others_cores=2.0, slow_share=0.3, slowdown=2.0))
        assert two.step_seconds is not None
        assert {two.relieved, two.basis != "measured", two.note is not None, "lies between" in slow} == {is_relieved}
        assert (two.step_seconds.median == pytest.approx(took)) is not is_relieved


def test_what_was_carried_far_from_a_crowded_batch_contains_little_of_it() -> None:
    """Told of a batch where nothing ran, while the crowd stays: by the half of it that was carried two threads were
    recommended, as measured among them."""
    near, far = (
        recommend(a_machine(CROWD), a_profile(), None, in_a_crowd(40.0), Request(a_workload(size))) for size in (64, 1)
    )
    for found, is_crowded in ((near, False), (far, True)):
        two = next(option for option in found.options if option.plan == TWO)
        assert two.crowded is is_crowded
        (reason,) = (reason for reason in found.reasons if reason.code == "crowded")
        assert (TWO.label in reason.evidence["plans"]) is is_crowded


def test_a_time_from_another_batch_is_not_said_to_have_been_measured_among_them() -> None:
    load = replace(CALM, busy_fraction=0.75)
    rows = [a_measurement(plan, 8, 1.0, others_cores=1.5) for plan in (ONE, TWO, ONE_BF16, TWO_BF16)]
    found = recommend(a_machine(load), None, None, [*rows, *(replace(row, batch_size=32) for row in rows)],
                      Request(a_workload(16)))  # fmt: skip
    assert {option.basis for option in found.options if option.step_seconds is not None} == {"probed"}
    (reason,) = (reason for reason in found.reasons if reason.code == "crowded")
    assert "rest on what was measured among them, in part at other batch sizes" in reason.text


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ((2.0, 1.0), "as far as it could be told, but for those whose notes tell of others who held more cores then."),
        ((2.0, 2.0), "and lie between what steps took then and the least that they may take without them."),
    ],
    ids=["one", "both"],
)
def test_a_time_from_a_larger_crowd_is_not_said_to_be_from_another_batch_nor_to_contain_this_one(
    others: tuple[float, float], said: str
) -> None:
    rows = [a_measurement(plan, 64, 1.0, others_cores=then) for plan, then in zip((TWO, TWO_BF16), others, strict=True)]
    found = answer(HALF, rows)
    told = {option.plan.key: option for option in found.options if option.step_seconds is not None}
    assert [told[plan.key].relieved for plan in (TWO, TWO_BF16)] == [then > 1.0 for then in others]
    (reason,) = (reason for reason in found.reasons if reason.code == "crowded")
    assert reason.text.endswith(said)
    assert "other batch sizes" not in reason.text
