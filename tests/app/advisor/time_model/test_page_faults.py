"""What fresh pages cost a step: the price by the profile, how many by the trace."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.advisor.operation_prices.prices import FaultPrice, prices_for
from app.advisor.summary import trace_of_summary
from app.advisor.time_model.predicted import predict
from probes.context import Context, ContextOperation, OperationCost
from probes.measurement import Timing
from probes.points import Point
from probes.profile import Profile
from probes.trace import Knot, Trace
from probes.workload.description import Plan
from tests.app.advisor.build import ONE, ONE_BF16, TWO, a_workload
from tests.app.advisor.machine import a_profile

BYTES, FAULTS = 40_960_000, 10_000


def a_point(seconds: float, faults: float, moved: float = BYTES, plan: Plan = ONE) -> Point:
    return Point("page-fault", plan, {"faults": faults}, 0.0, moved, Timing(seconds, seconds, seconds, (seconds,)))


def a_context(plan: Plan) -> Context:
    operation = ContextOperation("aten.relu", "elementwise", "", "float32", 0.0, 1e6, 1e6)
    return Context("a", 8, "training", plan, (OperationCost(operation, 1, 1e-3, 0.1),))


def profile(*points: Point) -> Profile:
    made_up = a_profile((ONE, TWO, ONE_BF16))
    contexts = tuple(map(a_context, (ONE, TWO, ONE_BF16)))
    return replace(made_up, points=(*made_up.points, *points), networks=(), contexts=contexts)


PRICED = profile(a_point(0.025, FAULTS), a_point(0.005, 0))


@pytest.mark.parametrize("plan", [ONE, TWO, ONE_BF16])
def test_a_page_costs_what_writing_it_anew_takes_beyond_writing_it_again(plan: Plan) -> None:
    prices = prices_for(PRICED, plan)
    assert prices is not None
    assert prices.fault is not None
    assert prices.fault == FaultPrice(pytest.approx(2e-6), 4096.0)


@pytest.mark.parametrize(("plan", "seconds"), [(ONE, 2e-6), (ONE_BF16, 2e-6), (TWO, 1.1e-6)])
def test_threads_that_take_faults_side_by_side_have_a_price_of_their_own(plan: Plan, seconds: float) -> None:
    two = (a_point(0.014, FAULTS, plan=TWO), a_point(0.003, 0, plan=TWO))
    prices = prices_for(profile(*two, a_point(0.025, FAULTS), a_point(0.005, 0)), plan)
    assert prices is not None
    assert prices.fault == FaultPrice(pytest.approx(seconds), 4096.0)


@pytest.mark.parametrize("fresh_seconds", [0.003, 0.06])
def test_a_price_that_cannot_be_believed_gives_way_to_that_of_one_thread(fresh_seconds: float) -> None:
    two = (a_point(fresh_seconds, FAULTS, plan=TWO), a_point(0.003, 0, plan=TWO))
    prices = prices_for(profile(*two, a_point(0.025, FAULTS), a_point(0.005, 0)), TWO)
    assert prices is not None
    assert prices.fault == FaultPrice(pytest.approx(2e-6), 4096.0)


@pytest.mark.parametrize(
    "points",
    [
        (),
        (a_point(0.025, FAULTS),),
        (a_point(0.004, FAULTS), a_point(0.005, 0)),
        (a_point(0.025, FAULTS, 0.0), a_point(0.005, 0)),
        (a_point(0.025, 1e-300), a_point(0.005, 0)),
        (a_point(0.025, 20), a_point(0.005, 0)),  # of two megabytes each
        (a_point(0.025, -1.0), a_point(0.005, 0)),
    ],
)
def test_without_a_believable_price_pages_cost_nothing(points: tuple[Point, ...]) -> None:
    prices = prices_for(profile(*points), ONE)
    assert prices is not None
    assert prices.fault is None
    assert prices.fresh_seconds(1e9) == 0.0


def seconds(trace: Trace, plan: Plan, batch_size: int) -> float:
    predicted = predict(PRICED, plan, trace, None)
    assert predicted is not None
    return predicted.at(batch_size, "resident").median


def test_a_step_that_finds_fresh_pages_takes_longer_by_their_price() -> None:
    plain = trace_of_summary(a_workload())
    fresh = replace(
        plain, heap_fresh=(Knot(1, 0), Knot(16, 4096 * 500)), autocast_heap_fresh=(Knot(1, 0), Knot(16, 4096 * 100))
    )
    assert seconds(fresh, ONE, 16) - seconds(plain, ONE, 16) == pytest.approx(500 * 2e-6)
    assert seconds(fresh, ONE_BF16, 16) - seconds(plain, ONE_BF16, 16) == pytest.approx(100 * 2e-6)
    assert seconds(fresh, ONE, 1) == pytest.approx(seconds(plain, ONE, 1))
