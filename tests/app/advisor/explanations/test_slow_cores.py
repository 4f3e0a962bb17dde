"""What an answer says of cores that were slow while plans were measured."""

from __future__ import annotations

from app.advisor.recommendation import Reason, Recommendation
from tests.app.advisor.answered import answer
from tests.app.advisor.build import ONE, TWO, a_measurement


def reason_of(found: Recommendation) -> Reason | None:
    return next((reason for reason in found.reasons if reason.code == "slow-cores"), None)


def test_slow_blocks_are_told_with_what_they_took() -> None:
    rows = [a_measurement(ONE, 16, 1.0, slow_share=0.0, slowdown=1.0),
            a_measurement(TWO, 16, 0.6, slow_share=0.4, slowdown=1.5)]  # fmt: skip
    found = answer(rows)
    assert found.recommended == TWO
    reason = reason_of(found)
    assert reason is not None
    assert "40 % of the blocks of cpu fp32, 2 threads" in reason.text
    assert "1.5 times as long" in reason.text
    assert "better choice" not in reason.text
    assert reason.evidence["plans"]["cpu fp32, 2 threads"]["mean_seconds"] == 0.6 * 1.2


def test_the_plan_that_took_least_on_average_is_named() -> None:
    rows = [a_measurement(ONE, 16, 1.0, slow_share=0.0, slowdown=1.0),
            a_measurement(TWO, 16, 0.8, slow_share=0.8, slowdown=1.9)]  # fmt: skip
    found = answer(rows)
    assert found.recommended == TWO
    reason = reason_of(found)
    assert reason is not None
    assert "cpu fp32, 1 thread took 1.0 s a step on average and cpu fp32, 2 threads 1.4 s" in reason.text


def test_a_machine_that_was_never_calm_is_no_base_for_a_factor() -> None:
    rows = [a_measurement(ONE, 16, 1.0, slow_share=1.0, slowdown=None)]
    reason = reason_of(answer(rows))
    assert reason is not None
    assert "Measure it again later (effort quick)." in reason.text
    assert "what steps took" in reason.text  # which is all, where a program of this machine held the cores throughout
    assert "is reckoned" not in reason.text


def test_what_is_reckoned_is_known_less_well() -> None:
    def width(slowdown: float | None) -> float:
        found = answer([a_measurement(ONE, 16, 1.0, slow_share=1.0, slowdown=slowdown)])
        (seconds,) = [option.step_seconds for option in found.options if option.plan == ONE]
        assert seconds is not None
        return seconds.high / seconds.low

    assert width(None) > width(1.4)


def test_a_calm_machine_is_not_mentioned() -> None:
    rows = [a_measurement(ONE, 16, 1.0, slow_share=0.05, slowdown=1.5), a_measurement(TWO, 16, 0.6)]
    assert reason_of(answer(rows)) is None
    assert reason_of(answer([a_measurement(ONE, 4, 1.0, slow_share=0.9, slowdown=1.5)])) is None  # another batch


def test_a_plan_that_met_no_calm_block_is_told_before_one_that_did() -> None:
    """How far its time is off nobody knows."""
    rows = [a_measurement(ONE, 16, 1.0, slow_share=0.15, slowdown=1.1), a_measurement(TWO, 16, 0.6, slow_share=1.0)]
    reason = reason_of(answer(rows))
    assert reason is not None
    assert "100 % of the blocks of cpu fp32, 2 threads" in reason.text
    assert "No block was calm" in reason.text


def test_calm_blocks_that_took_no_less_are_not_called_calm() -> None:
    reason = reason_of(answer([a_measurement(ONE, 16, 1.0, slow_share=0.6)]))
    assert reason is not None
    assert "The calm blocks took no less" in reason.text
    assert "No block was calm" not in reason.text
