"""What several visits to a micro-network, and several thread counts, say together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.advisor.summary import trace_of_summary
from probes.measurement import Timing
from probes.microtrain.calibrate import hindrance
from probes.microtrain.calibration.calibration_networks import quieter
from probes.microtrain.calibration.network_times import NetworkTimes, StepTime
from probes.points import NetworkPoint
from probes.workload.description import Plan
from tests.app.advisor.build import ONE, TWO, a_workload
from tests.app.advisor.operation_prices.test_context_prices import a_context, an_operation


def a_step(seconds: float, faults: float = 0.0, plan: Plan = ONE, batch_size: int = 4) -> StepTime:
    return StepTime(batch_size, plan, Timing(seconds, seconds, seconds, (seconds,)), faults)


def test_of_two_visits_the_quieter_counts_plan_by_plan() -> None:
    first = NetworkTimes([a_step(1.0, 100), a_step(3.0, plan=TWO)], [a_context(an_operation(), times=2.0)], None)
    second = NetworkTimes(
        [a_step(1.5, 300), a_step(2.0, plan=TWO), a_step(9.0, batch_size=8)], [a_context(an_operation())], None
    )
    times, ratios = quieter([first, second])
    assert [(step.batch_size, step.seconds.median) for step in times.steps] == [(4, 1.0), (4, 2.0), (8, 9.0)]
    assert times.steps[0].page_faults == 200  # they come with a process's heap, in a quiet minute as in another
    assert ratios == [1.5, 1.5]
    assert times.contexts == [second.contexts[0]]


def test_of_steps_and_operations_alike_the_visits_that_are_alike_count() -> None:
    """The faster of two is too fast: operations were told as their mean, and their step as the faster."""
    visits = [NetworkTimes([a_step(seconds)], [], None) for seconds in (1.1, 3.0, 1.0)]
    (step,) = quieter(visits)[0].steps
    assert step.seconds.samples == (1.1, 1.0)
    assert step.seconds.median == pytest.approx(1.05)


def test_of_operations_the_mean_of_visits_that_are_alike_counts() -> None:
    relu, gelu = an_operation("aten.relu"), an_operation("aten.gelu")
    first, second, burst = a_context(relu, gelu), a_context(relu, gelu, times=1.1), a_context(relu, gelu, times=3.0)
    times, _ = quieter([NetworkTimes([], [visit], None) for visit in (burst, first, second)])
    (context,) = times.contexts
    assert [cost.operation for cost in context.costs] == [relu, gelu]
    assert context.seconds == pytest.approx(first.seconds * 1.1**0.5, rel=1e-3)
    assert quieter([NetworkTimes([], [burst], None), NetworkTimes([], [first], None)])[0].contexts == [first]


def test_a_visit_on_calm_cores_counts_before_one_that_is_reckoned() -> None:
    """Reckoned it may come out as the quicker one."""
    calm, reckoned = a_context(an_operation(), times=2.0), replace(a_context(an_operation()), reckoned=True)
    steps = a_step(2.0, 100), a_step(1.0, 300)._replace(reckoned=True)
    visits = [NetworkTimes([steps[1]], [reckoned], None), NetworkTimes([steps[0]], [calm], None)]
    times, ratios = quieter(visits)
    assert times.contexts == [calm]
    (step,) = times.steps
    assert (step.seconds, step.reckoned, step.page_faults) == (steps[0].seconds, False, 200)
    assert ratios == [2.0]
    assert quieter(visits[:1])[0].contexts == [reckoned]


def test_one_visit_stands_as_it_is() -> None:
    visit = NetworkTimes([a_step(1.0)], [a_context(an_operation())], None)
    times, ratios = quieter([visit])
    assert times.steps == visit.steps
    assert ratios == []


@pytest.mark.parametrize(("on_two", "told"), [(0.012, 0.2), (0.006, 0.0)])
def test_threads_that_hinder_each_other_are_told(on_two: float, told: float) -> None:
    def points(one: float, two: float, name: str) -> list[NetworkPoint]:
        rows = ((ONE, one), (TWO, two))
        return [
            NetworkPoint(name, 4, plan, a_step(seconds).seconds, trace_of_summary(a_workload()))
            for plan, seconds in rows
        ]

    networks = [*points(0.010, on_two, "large"), *points(0.0001, 0.0005, "small")]  # small ones gain nothing anywhere
    assert hindrance(networks) == pytest.approx(told)
    assert hindrance(networks[:1]) is None
