"""A plan that is slow here takes no more of a calibration's time than the others."""

from __future__ import annotations

import pytest

from probes.microtrain.calibration.plan_shares import SMALLEST_SHARES, PlanShares
from tests.app.advisor.build import ONE, ONE_BF16, TWO
from tests.probes.microtrain.fake_runs import FakeClock

PLANS = (ONE, ONE_BF16, TWO)


def shares(seconds: float, slowness: dict[object, float] | None = None) -> PlanShares:
    """As after both batch sizes ran under the first plan: 0.1 s and 0.8 s a step."""
    found = PlanShares(PLANS, seconds, slowness or {})
    found.learn(ONE, 4, 0.1)
    found.learn(ONE, 32, 0.8)
    return found


def test_what_is_not_slow_takes_what_it_needs() -> None:
    poor = shares(0.0, {TWO.key: 2.0})
    assert poor.affords(ONE, 32, 5)
    assert poor.affords(TWO, 32, 5)
    assert PlanShares(PLANS, 0.0, {}).affords(ONE_BF16, 4, 5)  # nothing is known yet


def test_a_slow_plan_has_its_share_and_for_its_smallest_batch_some_more() -> None:
    slow = {ONE_BF16.key: 10.0}  # 1 s and 8 s a step
    assert shares(3 * 40.0, slow).affords(ONE_BF16, 32, 5)
    assert not shares(3 * 39.0, slow).affords(ONE_BF16, 32, 5)
    assert shares(3 * 5.0 / SMALLEST_SHARES, slow).affords(ONE_BF16, 4, 5)
    assert not shares(3 * 4.9 / SMALLEST_SHARES, slow).affords(ONE_BF16, 4, 5)


def test_what_it_took_here_counts_more_than_in_other_networks() -> None:
    found = shares(30.0, {ONE_BF16.key: 100.0})
    assert found.expected(ONE_BF16, 4) == pytest.approx(10.0)
    found.learn(ONE_BF16, 4, 0.3)
    assert found.expected(ONE_BF16, 32) == pytest.approx(2.4)
    assert found.slowness() == {ONE.key: 1.0, ONE_BF16.key: pytest.approx(3.0)}
    assert found.expected(TWO, 8) is None


def test_what_is_spent_is_gone(clock: FakeClock) -> None:
    found = shares(3 * 0.04, {ONE_BF16.key: 3.0})
    found.learn(ONE_BF16, 32, 2.5)
    assert not found.affords(ONE_BF16, 32, 1)
    rich = shares(3 * 2.5, {ONE_BF16.key: 3.0})
    assert rich.affords(ONE_BF16, 32, 1)
    with rich.spending(ONE_BF16):
        clock.now += 0.15
    assert not rich.affords(ONE_BF16, 32, 1)


def test_a_plan_that_the_first_did_not_run_before_is_tried() -> None:
    """Where the first plan fails, others are not left out for it."""
    assert PlanShares(PLANS, 0.0, {ONE_BF16.key: 100.0}).affords(ONE_BF16, 4, 5)
