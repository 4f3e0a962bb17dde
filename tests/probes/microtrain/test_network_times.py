"""Steps of micro-networks are timed warm, and clocked where no operation finds fresh pages."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext

import pytest

from app.advisor.summary import trace_of_summary
from probes.issued import Issued
from probes.measurement import Timing
from probes.microtrain.calibrate import hindrance
from probes.microtrain.calibration_networks import quieter
from probes.microtrain.calm import Calm
from probes.microtrain.fresh_processes import prepare, run_fresh, wait_until_ready
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
from probes.microtrain.recording import Record
from probes.microtrain.resting import Rest
from probes.profile import NetworkPoint
from probes.workload.description import Plan
from tests.app.advisor.build import ONE, ONE_BF16, TWO, a_workload
from tests.app.advisor.test_context_prices import a_context, an_operation

# Nothing is cut short by then, on any machine: what ends a network is that it had all its rounds.
FAR_OFF = 600.0


class FakeClock:
    """In the place of the module time; moved by fake steps alone."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


class FakeRun:
    """A StepRun, and its step, that takes `seconds` on the fake clock and nothing else."""

    def __init__(
        self, clock: FakeClock, plan: Plan = ONE, batch_size: int = 4, seconds: Callable[[], float] = lambda: 0.002
    ) -> None:
        self.plan, self.batch_size = plan, batch_size
        self.calls: list[int] = []
        self._clock, self._seconds = clock, seconds

    def setting(self) -> nullcontext[None]:
        return nullcontext()

    def prepared(self) -> FakeRun:
        return self

    def __call__(self, executions: int = 1) -> None:
        self.calls.append(executions)
        self._clock.now += self._seconds() * executions


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """The one that networks, plans' shares and fake steps go by."""
    clock = FakeClock()
    for module in ("network_times", "plan_shares"):
        monkeypatch.setattr(f"probes.microtrain.{module}.time", clock)
    return clock


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
    monkeypatch.setattr("probes.microtrain.network_times.read_pace", lambda: next(paces))
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
    all_of_them = {(size, plan.key) for size in (4, 64) for plan in (ONE, ONE_BF16)}
    assert {(step.batch_size, step.plan.key) for step in times.steps} == all_of_them
    assert {(context.batch_size, context.plan.key) for context in times.contexts} == all_of_them
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


def test_a_plan_too_slow_for_its_share_is_left_out_unless_nothing_says_so() -> None:
    """At no batch size has it a turn before the first plan, which tells what it would take."""
    arguments = ("mlp-tiny", "training", (ONE, ONE_BF16), time.perf_counter() + FAR_OFF, {ONE_BF16.key: 1e9}, {})
    times = run_fresh(measure_network, arguments, lambda: None)
    assert {(step.batch_size, step.plan.key) for step in times.steps} == {(4, ONE.key), (64, ONE.key)}
    assert {(found.batch_size, found.plan.key) for found in times.contexts} == {(4, ONE.key), (64, ONE.key)}
    assert times.slowness == {ONE.key: 1.0}


def test_inference_is_timed_and_clocked_one_sample_at_a_time_too() -> None:
    arguments = ("mlp-tiny", "inference", (ONE,), time.perf_counter() + FAR_OFF, {}, {})
    times = run_fresh(measure_network, arguments, lambda: None)
    assert [step.batch_size for step in times.steps] == [1, 4, 64]
    assert {context.batch_size for context in times.contexts} == {1, 4, 64}
    for network in MICRO_NETWORKS:
        assert network.sizes("training") == network.batch_sizes
        assert network.sizes("inference") == tuple(sorted({1, *network.batch_sizes}))


class FakeNetwork:
    """mlp-narrow whose steps, timed and clocked, take what `seconds` says of a plan and batch size; who ran when."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, clock: FakeClock, seconds: Callable[[Plan, int], float], *, timed: bool
    ) -> None:
        self.runs: list[FakeRun] = []
        network = next(network for network in MICRO_NETWORKS if network.name == "mlp-narrow")
        record = Record("forward", "elementwise", "aten.relu", "float32", ((4,),), 4, 16, 16)
        fakes = {
            "MICRO_NETWORKS": (network._replace(timed=timed),),
            "StepRun": lambda _, plan, size: self._run(FakeRun(clock, plan, size, lambda: seconds(plan, size))),
            "record_step": lambda _: ([record], Issued()),
            "clock_step": lambda step: [step() or seconds(step.plan, step.batch_size)],
            "read_pace": lambda: 0.001,
            "keep_freed_memory": lambda: None,  # of the process that runs the tests
        }
        for name, fake in fakes.items():
            monkeypatch.setattr(f"probes.microtrain.network_times.{name}", fake)

    def _run(self, run: FakeRun) -> FakeRun:
        self.runs.append(run)
        return run

    def measure(
        self, deadline: float, slowness: dict[object, float], plans: Sequence[Plan] = (ONE, ONE_BF16)
    ) -> NetworkTimes:
        return measure_network("mlp-narrow", "training", plans, deadline, slowness, {})

    def steps(self, plan: Plan, batch_size: int) -> int:
        return sum(sum(run.calls) for run in self.runs if (run.plan, run.batch_size) == (plan, batch_size))


def test_the_threads_of_many_rest_before_fewer_have_their_turn(
    monkeypatch: pytest.MonkeyPatch, clock: FakeClock
) -> None:
    four, three = Plan("cpu", "fp32", 4), Plan("cpu", "fp32", 3)
    turns: list[int | None] = []

    def seconds(plan: Plan, batch_size: int) -> float:
        turns.append(plan.threads)
        return 0.001

    network = FakeNetwork(monkeypatch, clock, seconds, timed=True)
    monkeypatch.setattr(Rest, "wait_for", lambda rest, process: turns.append(process))
    network.measure(1.0, {}, (four, ONE, three))
    order = [key for key, _ in itertools.groupby(turns)]
    pairs = set(itertools.pairwise(order))
    assert {(4, os.getpid()), (os.getpid(), 1), (1, 3)} <= pairs
    assert not {(4, 3), (4, 1), (3, 1)} & pairs


def test_every_batch_size_is_clocked_under_every_plan_though_the_share_is_spent(
    monkeypatch: pytest.MonkeyPatch, clock: FakeClock
) -> None:
    """Half as much longer does for it: six turns of 0.013 s each, after a third of the time for timing."""
    network = FakeNetwork(monkeypatch, clock, lambda plan, size: 0.001, timed=True)
    times = network.measure(0.1, {})
    assert clock.now > 0.1
    clocked = {(context.batch_size, context.plan.key) for context in times.contexts}
    assert clocked == {(size, plan.key) for size in (8, 64, 512) for plan in (ONE, ONE_BF16)}


@pytest.mark.parametrize("timed", [True, False])
def test_a_slow_plan_has_no_steps_that_its_share_is_too_small_for(
    monkeypatch: pytest.MonkeyPatch, clock: FakeClock, timed: bool
) -> None:
    """Be steps timed or clocked alone: two of the largest batch take 51 s, of which it has 12."""

    def seconds(plan: Plan, batch_size: int) -> float:
        return 0.001 * batch_size * (50 if plan == ONE_BF16 else 1)

    network = FakeNetwork(monkeypatch, clock, seconds, timed=timed)
    times = network.measure(24.0, {})
    assert network.steps(ONE_BF16, 8) > 0
    assert network.steps(ONE, 512) > 0 == network.steps(ONE_BF16, 512)
    assert times.slowness == {ONE.key: 1.0, ONE_BF16.key: pytest.approx(50.0)}
    assert times.missed == 0  # more time would not bring it


def test_however_late_it_is_the_smallest_batch_has_its_turn_under_every_plan(
    monkeypatch: pytest.MonkeyPatch, clock: FakeClock
) -> None:
    network = FakeNetwork(monkeypatch, clock, lambda plan, size: 0.001, timed=True)
    times = network.measure(-1.0, {})
    smallest = {(8, ONE.key), (8, ONE_BF16.key)}
    assert {(step.batch_size, step.plan.key) for step in times.steps} == smallest
    assert {(context.batch_size, context.plan.key) for context in times.contexts} == smallest
    assert times.missed == pytest.approx(4 / 6)


def test_a_plan_that_fails_has_missed_nothing(monkeypatch: pytest.MonkeyPatch, clock: FakeClock) -> None:
    def seconds(plan: Plan, batch_size: int) -> float:
        if plan == ONE_BF16:
            raise RuntimeError("no such kernel")
        return 0.001

    network = FakeNetwork(monkeypatch, clock, seconds, timed=True)
    times = network.measure(FAR_OFF, {})
    assert {context.plan.key for context in times.contexts} == {ONE.key}
    assert times.missed == 0


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


def test_of_operations_the_mean_of_visits_that_are_alike_counts() -> None:
    relu, gelu = an_operation("aten.relu"), an_operation("aten.gelu")
    first, second, burst = a_context(relu, gelu), a_context(relu, gelu, times=1.1), a_context(relu, gelu, times=3.0)
    times, _ = quieter([NetworkTimes([], [visit], None) for visit in (burst, first, second)])
    (context,) = times.contexts
    assert [cost.operation for cost in context.costs] == [relu, gelu]
    assert context.seconds == pytest.approx(first.seconds * 1.1**0.5, rel=1e-3)
    assert quieter([NetworkTimes([], [burst], None), NetworkTimes([], [first], None)])[0].contexts == [first]


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
    turns = [(size, plan) for size in (4, 16, 64, 256) for plan in "abc"]
    orders = [in_turn(turns, 3) for _ in range(50)]
    for order in orders:
        assert order[:3] == [(4, "a"), (4, "b"), (4, "c")]
        sizes = [size for size, _ in order[::3]]
        assert order == [(size, plan) for size in sizes for plan in "abc"]  # the first plan before what it judges
        assert sorted(order) == turns
    assert len({tuple(order) for order in orders}) > 1
    assert in_turn([], 3) == []
