"""Steps of micro-networks are timed warm, and clocked where no operation finds fresh pages."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from probes.microtrain.calibration.network_times import MOST_TIMED, measure_network
from probes.microtrain.calibration.networks import MICRO_NETWORKS
from probes.microtrain.calibration.step_timer import SETTLING_SECONDS, StepTimer
from probes.microtrain.calibration.turns import LEAD_IN_SECONDS, LONG_SECONDS, repeat
from probes.microtrain.processes.fresh_processes import prepare, run_fresh, wait_until_ready
from probes.microtrain.quiet.calm import Calm
from tests.app.advisor.build import ONE, ONE_BF16
from tests.probes.microtrain.fake_runs import FakeClock, FakeRun
from tests.probes.small_pages import SMALL_PAGES

# Nothing is cut short by then, on any machine: what ends a network is that it had all its rounds.
FAR_OFF = 600.0


@pytest.fixture(scope="module", autouse=True)
def _forks() -> None:
    """The process that forks imports torch for seconds when the first test needs it."""
    if prepare():
        wait_until_ready()


def test_a_process_settles_by_steps_that_are_not_timed(clock: FakeClock) -> None:
    run = FakeRun(clock)
    timer = StepTimer(run)  # type: ignore[arg-type]
    timer.settle()
    assert clock.now >= SETTLING_SECONDS
    assert timer.timing() is None
    assert timer.step_seconds is None


def test_what_fails_while_it_settles_is_left_out(clock: FakeClock) -> None:
    class Failing(FakeRun):
        def __call__(self, executions: int = 1) -> None:
            raise RuntimeError("no memory")

    timer = StepTimer(Failing(clock))  # type: ignore[arg-type]
    timer.settle()
    timer.take()
    assert timer.timing() is None


def test_a_turn_warms_up_before_it_is_timed(clock: FakeClock) -> None:
    run = FakeRun(clock)
    timer = StepTimer(run)  # type: ignore[arg-type]
    timer.take()
    timer.take()
    timing = timer.timing()
    assert timing is not None
    assert timing.samples == pytest.approx((0.002, 0.002))
    assert run.calls[:2] == [1, 1]  # what lives from step to step is made before the clock runs


def test_what_a_step_takes_is_known_without_what_the_first_of_a_process_make(clock: FakeClock) -> None:
    class Slow(FakeRun):
        def __call__(self, executions: int = 1) -> None:
            self._clock.now += 0.0 if self.calls else 0.05
            super().__call__(executions)

    timer = StepTimer(Slow(clock))  # type: ignore[arg-type]
    timer.take()
    assert timer.step_seconds == pytest.approx(0.002)


def test_the_lead_in_is_whole_where_the_first_steps_take_longer_than_it(clock: FakeClock) -> None:
    """In bf16 they make kernels: the third step of a turn is not yet what the others take."""

    class MakesKernels(FakeRun):
        def __call__(self, executions: int = 1) -> None:
            self._clock.now += 2 * LEAD_IN_SECONDS if len(self.calls) < 2 else 0.0
            super().__call__(executions)

    run = MakesKernels(clock)
    StepTimer(run).take()  # type: ignore[arg-type]
    _, _, *lead_in, _ = run.calls
    assert sum(lead_in) * 0.002 >= LEAD_IN_SECONDS


def test_turns_on_slow_cores_do_not_count_where_one_was_calm(monkeypatch: pytest.MonkeyPatch, clock: FakeClock) -> None:
    paces = iter([0.002, 0.001, 0.002])
    monkeypatch.setattr("probes.microtrain.calibration.turns.read_pace", lambda: next(paces))
    timer = StepTimer(FakeRun(clock), Calm(0.001))  # type: ignore[arg-type]
    timer.take()
    slow = timer.timing()
    assert slow is not None
    assert slow.median < 0.0019  # it is reckoned back
    assert not timer.was_calm
    timer.take()
    timer.take()
    timing = timer.timing()
    assert timing is not None
    assert timing.samples == pytest.approx((0.002,))
    assert timer.was_calm


def test_what_does_not_run_has_no_time(clock: FakeClock) -> None:
    class NotMade(FakeRun):
        def prepared(self) -> FakeRun:
            raise RuntimeError("no memory")

    timer = StepTimer(NotMade(clock))  # type: ignore[arg-type]
    timer.take()
    timer.take()
    assert timer.timing() is None


def test_repeating_tells_how_often(clock: FakeClock) -> None:
    run = FakeRun(clock, seconds=lambda: 0.25 * LONG_SECONDS)
    assert repeat(run, 0.0) == 1
    assert repeat(run, 0.0, 3) == 3
    assert repeat(run, 9.9 * LONG_SECONDS) == 40
    assert repeat(FakeRun(clock, seconds=lambda: 1.1 * LONG_SECONDS), 0.0, 3) == 1  # one long one is enough


def test_a_network_is_timed_and_clocked_under_every_plan() -> None:
    arguments = ("mlp-tiny", "training", (ONE, ONE_BF16), time.perf_counter() + FAR_OFF, {}, {})
    times = run_fresh(measure_network, arguments, lambda: None)  # it changes how its process allocates
    timed, large = ({(size, plan.key) for size in sizes for plan in (ONE, ONE_BF16)} for sizes in ((4, 64), (2048,)))
    assert {(step.batch_size, step.plan.key) for step in times.steps} == timed
    assert {(context.batch_size, context.plan.key) for context in times.contexts} == timed | large
    assert all(step.seconds.median > 0 for step in times.steps)
    assert times.paces[1] > 0
    assert 0 <= times.disturbed <= 1
    assert all(len(step.seconds.samples) <= MOST_TIMED for step in times.steps)


def test_of_a_network_that_is_like_no_other_the_operations_alone_are_clocked() -> None:
    """However late it is, the smallest batch under every plan."""
    network = next(network for network in MICRO_NETWORKS if network.name == "assorted-elementwise")
    arguments = (network.name, "training", (ONE, ONE_BF16), time.perf_counter(), {}, {})
    times = run_fresh(measure_network, arguments, lambda: None)
    assert not times.steps
    clocked = {(context.batch_size, context.plan.key) for context in times.contexts}
    assert clocked == {(min(network.batch_sizes), plan.key) for plan in (ONE, ONE_BF16)}


def test_turns_are_judged_by_the_quickest_reading_of_the_networks_before() -> None:
    """A network's process may meet slow cores from beginning to end."""
    arguments = ("mlp-tiny", "training", (ONE,), time.perf_counter(), {}, {1: 1e-9})
    times = run_fresh(measure_network, arguments, lambda: None)
    assert times.disturbed == 1
    assert times.steps
    assert times.contexts
    assert all(timed.reckoned for timed in (*times.steps, *times.contexts))


def test_a_plan_too_slow_for_its_share_is_left_out_unless_nothing_says_so() -> None:
    """At no batch size has it a turn before the first plan, which tells what it would take."""
    arguments = ("mlp-tiny", "training", (ONE, ONE_BF16), time.perf_counter() + FAR_OFF, {ONE_BF16.key: 1e9}, {})
    times = run_fresh(measure_network, arguments, lambda: None)
    assert {(step.batch_size, step.plan.key) for step in times.steps} == {(4, ONE.key), (64, ONE.key)}
    assert {(found.batch_size, found.plan.key) for found in times.contexts} == {(s, ONE.key) for s in (4, 64, 2048)}
    assert times.slowness == {ONE.key: 1.0}


def test_inference_is_timed_and_clocked_one_sample_at_a_time_too() -> None:
    arguments = ("mlp-tiny", "inference", (ONE,), time.perf_counter() + FAR_OFF, {}, {})
    times = run_fresh(measure_network, arguments, lambda: None)
    assert [step.batch_size for step in times.steps] == [1, 4, 64]
    assert {context.batch_size for context in times.contexts} == {1, 4, 64, 2048}
    for network in MICRO_NETWORKS:
        assert network.sizes("training") == network.batch_sizes
        assert network.sizes("inference") == tuple(sorted({1, *network.batch_sizes}))


CLOCKED = f"""{SMALL_PAGES}
import time
from probes.microtrain.calibration import network_times, step_clock
from probes.microtrain.processes.footprint import count_page_faults
from probes.workload.description import Plan

faults = []
clock = step_clock.clock_step
def counted(step):
    before = count_page_faults()
    seconds = clock(step)
    faults.append(count_page_faults() - before)
    return seconds
step_clock.clock_step = counted
plans, end = (Plan("cpu", "fp32", 1),), time.perf_counter() + {FAR_OFF}
times = network_times.measure_network("embedding-classifier", "training", plans, end, {{}}, {{}})
plain = max(step.page_faults for step in times.steps)
print(plain, sorted(faults)[len(faults) // 2])
"""


def test_no_operation_is_clocked_on_fresh_pages() -> None:
    # As long as nobody asks for another, large tensors have pages of their own. By itself glibc raises this threshold,
    # and then it depends on what else lies in the heap.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(2**17)}
    run = subprocess.run([sys.executable, "-c", CLOCKED], env=environment, capture_output=True, text=True, check=True)
    plain, clocked = map(float, run.stdout.split())
    assert plain > 500  # a step of 30 MB of state finds some
    assert clocked < 0.05 * plain
