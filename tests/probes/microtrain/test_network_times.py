"""Steps of micro-networks are timed warm, and clocked where no operation finds fresh pages."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import replace

import pytest

from app.advisor.summary import trace_of_summary
from probes.measurement import Timing
from probes.microtrain.calibrate import hindrance
from probes.microtrain.calibration_networks import quieter
from probes.microtrain.calm import Calm
from probes.microtrain.fresh_processes import run_fresh
from probes.microtrain.network_times import (
    LEAD_IN_SECONDS,
    LONG_SECONDS,
    MOST_TIMED,
    SETTLING_SECONDS,
    NetworkTimes,
    StepTime,
    StepTimer,
    in_turn,
    measure_network,
    repeat,
)
from probes.microtrain.networks import MICRO_NETWORKS
from probes.profile import NetworkPoint
from probes.workload.description import Plan
from tests.app.advisor.build import ONE, ONE_BF16, TWO, a_workload
from tests.app.advisor.test_context_prices import a_context, an_operation


class FakeRun:
    """A StepRun whose steps take no time but what the fake clock says."""

    def __init__(self, fails: bool = False) -> None:
        self.plan, self.batch_size = ONE, 4
        self.calls: list[int] = []
        self._fails = fails

    def setting(self) -> nullcontext[None]:
        return nullcontext()

    def prepared(self) -> None:
        if self._fails:
            raise RuntimeError("no memory")

    def __call__(self, executions: int) -> None:
        self.calls.append(executions)
        time.sleep(0.002 * executions)


def test_a_process_settles_by_steps_that_are_not_timed() -> None:
    run = FakeRun()
    timer = StepTimer(run)  # type: ignore[arg-type]
    timer.settle()
    assert sum(run.calls) * 0.002 >= SETTLING_SECONDS / 2
    assert timer.timing() is None
    assert timer.step_seconds is None


def test_what_fails_while_it_settles_is_left_out() -> None:
    class Failing(FakeRun):
        def __call__(self, executions: int) -> None:
            raise RuntimeError("no memory")

    timer = StepTimer(Failing())  # type: ignore[arg-type]
    timer.settle()
    timer.take()
    assert timer.timing() is None


def test_a_turn_warms_up_before_it_is_timed() -> None:
    run = FakeRun()
    timer = StepTimer(run)  # type: ignore[arg-type]
    timer.take()
    timer.take()
    timing = timer.timing()
    assert timing is not None
    assert len(timing.samples) == 2
    assert run.calls[:2] == [1, 1]  # what lives from step to step is made before the clock runs
    assert timing.median >= 0.002


def test_what_a_step_takes_is_known_without_what_the_first_of_a_process_make() -> None:
    class Slow(FakeRun):
        def __call__(self, executions: int) -> None:
            time.sleep(0.05 if not self.calls else 0.0)
            super().__call__(executions)

    timer = StepTimer(Slow())  # type: ignore[arg-type]
    timer.take()
    assert timer.step_seconds is not None
    assert timer.step_seconds < 0.04


def test_the_lead_in_is_whole_where_the_first_steps_take_longer_than_it() -> None:
    """In bf16 they make kernels: the third step of a turn is not yet what the others take."""

    class MakesKernels(FakeRun):
        def __call__(self, executions: int) -> None:
            time.sleep(2 * LEAD_IN_SECONDS if len(self.calls) < 2 else 0.0)
            super().__call__(executions)

    run = MakesKernels()
    StepTimer(run).take()  # type: ignore[arg-type]
    *before, _ = run.calls
    assert len(before) > 2  # these two, then the lead-in, then what is timed


def test_turns_on_slow_cores_do_not_count_where_one_was_calm(monkeypatch: pytest.MonkeyPatch) -> None:
    paces = iter([0.002, 0.001, 0.002])
    monkeypatch.setattr("probes.microtrain.network_times.read_pace", lambda: next(paces))
    timer = StepTimer(FakeRun(), Calm(0.001))  # type: ignore[arg-type]
    timer.take()
    slow = timer.timing()
    assert slow is not None
    assert slow.median < 0.002  # it is reckoned back
    assert not timer.was_calm
    timer.take()
    timer.take()
    timing = timer.timing()
    assert timing is not None
    assert len(timing.samples) == 1
    assert timer.was_calm


def test_what_does_not_run_has_no_time() -> None:
    timer = StepTimer(FakeRun(fails=True))  # type: ignore[arg-type]
    timer.take()
    timer.take()
    assert timer.timing() is None


def test_repeating_tells_how_often() -> None:
    assert repeat(lambda: None, 0.0) == 1
    assert repeat(lambda: None, 0.0, 3) == 3
    assert repeat(lambda: None, 0.01) > 10
    assert repeat(lambda: time.sleep(LONG_SECONDS), 0.0, 3) == 1  # one long one is enough


def test_a_network_is_timed_and_clocked_under_every_plan() -> None:
    arguments = ("mlp-tiny", "training", (ONE, ONE_BF16), time.perf_counter() + 0.5, {}, {})
    times = run_fresh(measure_network, arguments, lambda: None)  # it changes how its process allocates
    assert {(step.batch_size, step.plan.key) for step in times.steps} >= {(4, ONE.key), (4, ONE_BF16.key)}
    assert all(step.seconds.median > 0 for step in times.steps)
    assert {context.plan.key for context in times.contexts} == {ONE.key, ONE_BF16.key}
    assert times.paces[1] > 0
    assert 0 <= times.disturbed <= 1
    assert all(len(step.seconds.samples) <= MOST_TIMED for step in times.steps)


def test_of_a_network_that_is_like_no_other_the_operations_alone_are_clocked() -> None:
    network = next(network for network in MICRO_NETWORKS if network.name == "assorted-elementwise")
    plans = (ONE, ONE_BF16)
    times = run_fresh(measure_network, (network.name, "training", plans, time.perf_counter() + 2, {}, {}), lambda: None)
    assert not times.steps
    clocked = {(context.batch_size, context.plan.key) for context in times.contexts}
    assert clocked == {(size, plan.key) for size in network.batch_sizes for plan in plans}


def test_turns_are_judged_by_the_quickest_reading_of_the_networks_before() -> None:
    """A network's process may meet slow cores from beginning to end."""
    arguments = ("mlp-tiny", "training", (ONE,), time.perf_counter() + 0.5, {}, {1: 1e-9})
    times = run_fresh(measure_network, arguments, lambda: None)
    assert times.disturbed == 1
    assert times.steps
    assert times.contexts


def test_every_batch_size_is_clocked_under_every_plan_though_the_share_is_spent() -> None:
    """Timing alone takes a third of this; another share may be drawn for what is left."""
    arguments = ("mlp-narrow", "training", (ONE, ONE_BF16), time.perf_counter() + 0.4, {}, {})
    times = run_fresh(measure_network, arguments, lambda: None)
    clocked = {(context.batch_size, context.plan.key) for context in times.contexts}
    assert clocked == {(size, plan.key) for size in (8, 64, 512) for plan in (ONE, ONE_BF16)}


def test_a_plan_too_slow_for_its_share_is_left_out_unless_nothing_says_so() -> None:
    arguments = ("mlp-tiny", "training", (ONE, ONE_BF16), time.perf_counter() + 0.5, {ONE_BF16.key: 1e6}, {})
    times = run_fresh(measure_network, arguments, lambda: None)
    assert {step.plan.key for step in times.steps} == {ONE.key}
    assert times.slowness == {ONE.key: 1.0}


def test_inference_is_timed_and_clocked_one_sample_at_a_time_too() -> None:
    arguments = ("mlp-tiny", "inference", (ONE,), time.perf_counter() + 0.5, {}, {})
    times = run_fresh(measure_network, arguments, lambda: None)
    assert [step.batch_size for step in times.steps] == [1, 4, 64]
    assert 1 in {context.batch_size for context in times.contexts}
    for network in MICRO_NETWORKS:
        assert network.sizes("training") == network.batch_sizes
        assert network.sizes("inference") == tuple(sorted({1, *network.batch_sizes}))


CLOCKED = """
import time
from probes.microtrain import network_times
from probes.microtrain.footprint import count_page_faults
from probes.workload.description import Plan

faults = []
clock = network_times.clock_step
def counted(step):
    before = count_page_faults()
    seconds = clock(step)
    faults.append(count_page_faults() - before)
    return seconds
network_times.clock_step = counted
plans = (Plan("cpu", "fp32", 1),)
times = network_times.measure_network("embedding-classifier", "training", plans, time.perf_counter() + 2, {}, {})
plain = max(step.page_faults for step in times.steps)
print(plain, sorted(faults)[len(faults) // 2])
"""


def test_no_operation_is_clocked_on_fresh_pages() -> None:
    run = subprocess.run([sys.executable, "-c", CLOCKED], capture_output=True, text=True, check=True)
    plain, clocked = map(float, run.stdout.split())
    assert plain > 500  # a step of 30 MB of state finds some
    assert clocked < 0.05 * plain


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


def test_of_each_operation_the_quieter_visit_counts() -> None:
    """A burst meets some operations of some steps."""
    relu, gelu = an_operation("aten.relu"), an_operation("aten.gelu")
    first, second = a_context(relu, gelu), a_context(relu, gelu, times=3.0)
    burst = replace(first, costs=(first.costs[0]._replace(seconds=1.0), first.costs[1]))
    times, _ = quieter([NetworkTimes([], [burst], None), NetworkTimes([], [second], None)])
    assert times.contexts == [replace(first, costs=(second.costs[0], first.costs[1]))]


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


def test_the_smallest_batch_has_its_turn_first_and_chance_decides_about_the_others() -> None:
    orders = [in_turn(["a", "b"], [1, 2, 3, 4]) for _ in range(50)]
    assert all(order[:2] == ["a", "b"] and sorted(order[2:]) == [1, 2, 3, 4] for order in orders)
    assert len({tuple(order) for order in orders}) > 1
