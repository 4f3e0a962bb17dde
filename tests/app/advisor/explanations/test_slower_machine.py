"""What an answer says of a machine that is slower for good than when it was calibrated."""

from __future__ import annotations

from app.advisor.explanations.slower_machine import explain_slower

CALIBRATED = {1: 1e-4, 2: 2e-4}


def test_a_slower_machine_is_told_with_how_much_longer_the_same_work_takes() -> None:
    reason = explain_slower(CALIBRATED, {1: 1.6e-4, 2: 2e-4})
    assert reason is not None
    assert "with 1 thread," in reason.text
    assert "1.6 times as long" in reason.text
    assert reason.evidence == {"times_as_long": {"1": 1.6e-4 / 1e-4}}


def test_of_several_numbers_of_threads_that_are_slower_the_least_is_told_as_such() -> None:
    reason = explain_slower(CALIBRATED, {1: 1.2e-4, 2: 3.2e-4})
    assert reason is not None
    assert "with 1 and 2 threads," in reason.text
    assert "1.2 times as long at least" in reason.text


def test_a_machine_that_is_as_it_was_calibrated_is_not_mentioned() -> None:
    assert explain_slower(CALIBRATED, CALIBRATED) is None
    assert explain_slower(CALIBRATED, {}) is None
    assert explain_slower({}, {}) is None
