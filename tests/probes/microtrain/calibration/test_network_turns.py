"""Which plan and batch size of a micro-network has the next turn, and which has none."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pytest

from probes.issued import Issued
from probes.microtrain.calibration.network_times import NetworkTimes, measure_network
from probes.microtrain.calibration.networks import MICRO_NETWORKS
from probes.microtrain.calibration.operation_clock import ClockedStep
from probes.microtrain.calibration.step_clock import StepClock
from probes.microtrain.calibration.turns import LONG_SECONDS, in_turn, without_calm
from probes.microtrain.quiet.calm import Calm
from probes.microtrain.quiet.resting import Rest
from probes.microtrain.traces.recording import Record
from probes.workload.description import Plan
from tests.app.advisor.build import ONE, ONE_BF16
from tests.probes.microtrain.fake_runs import FakeClock, FakeRun


class FakeNetwork:
    """mlp-narrow whose steps, timed and clocked, take what `seconds` says of a plan and batch size; who ran when."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, clock: FakeClock, seconds: Callable[[Plan, int], float], *, timed: bool
    ) -> None:
        self.runs: list[FakeRun] = []
        network = next(network for network in MICRO_NETWORKS if network.name == "mlp-narrow")
        record = Record("forward", "elementwise", "aten.relu", "float32", ((4,),), 4, 16, 16)
        fakes = {
            "network_times.MICRO_NETWORKS": (network._replace(timed=timed, large_batch=None),),
            "network_times.StepRun": lambda _, plan, size: self._run(
                FakeRun(clock, plan, size, lambda: seconds(plan, size))
            ),
            "step_clock.record_step": lambda _: ([record], Issued()),
            "step_clock.record_operations": lambda _: [record],
            "step_clock.clock_step": lambda step: ClockedStep([step() or seconds(step.plan, step.batch_size)]),
            "turns.read_pace": lambda: 0.001,
            "network_times.keep_freed_memory": lambda: None,  # of the process that runs the tests
        }
        for name, fake in fakes.items():
            monkeypatch.setattr(f"probes.microtrain.calibration.{name}", fake)

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
    times = network.measure(24.0, {})
    assert {context.plan.key for context in times.contexts} == {ONE.key}
    assert times.missed == 0


def test_the_smallest_batch_has_its_turn_first_and_chance_decides_about_the_others() -> None:
    turns = [(size, plan) for size in (4, 16, 64, 256) for plan in "abc"]
    orders = [in_turn(turns, 3) for _ in range(50)]
    for order in orders:
        assert order[:3] == [(4, "a"), (4, "b"), (4, "c")]
        sizes = [size for size, _ in order[::3]]
        assert [size for size, _ in order] == [size for size in sizes for _ in "abc"]
        assert {plan for _, plan in order[::3]} == {"a"}  # the first plan before what it judges
        assert sorted(order) == turns
    assert len({tuple(size for size, _ in order) for order in orders}) > 1
    assert {order[-1][1] for order in orders} == {"b", "c"}  # else the last never had one, where time is short
    assert in_turn([], 3) == []


def test_those_that_met_slow_cores_alone_have_another_turn() -> None:
    first, second, third = (SimpleNamespace(was_calm=calm) for calm in (False, True, False))
    orders = [without_calm([first, second, third]) for _ in range(50)]
    assert first in orders[0]
    assert third in orders[0]
    assert all(second not in order for order in orders)
    assert {order[0] is first for order in orders} == {True, False}


def test_what_was_clocked_on_calm_cores_leaves_its_time_to_others(
    monkeypatch: pytest.MonkeyPatch, clock: FakeClock
) -> None:
    network = FakeNetwork(monkeypatch, clock, lambda plan, size: 0.001, timed=True)
    network.measure(24.0, {})
    assert clock.now < 1.0


@pytest.mark.parametrize(("operations", "counted"), [((1, 1, 1), 2), ((1, 2, 1), 3)])
def test_what_issues_operations_is_counted_at_one_batch_size_of_each_precision(
    monkeypatch: pytest.MonkeyPatch, clock: FakeClock, operations: tuple[int, ...], counted: int
) -> None:
    """It takes four times as long as recording alone: but for another number of operations, which is counted anew."""
    network = FakeNetwork(monkeypatch, clock, lambda plan, size: 0.001, timed=True)
    record = Record("forward", "elementwise", "aten.relu", "float32", ((4,),), 4, 16, 16)
    counts: list[tuple[int, str]] = []

    def recorded(step: FakeRun) -> list[Record]:
        sizes = (8, 64, 512)
        return [record] * (1 if step.plan == ONE_BF16 else operations[sizes.index(step.batch_size)])

    def count(step: FakeRun) -> tuple[list[Record], Issued]:
        counts.append((step.batch_size, step.plan.precision))
        return recorded(step), Issued(calls=step.batch_size)

    def clocked(step: FakeRun) -> ClockedStep:
        step()
        return ClockedStep([0.001] * len(recorded(step)))

    monkeypatch.setattr("probes.microtrain.calibration.step_clock.record_operations", recorded)
    monkeypatch.setattr("probes.microtrain.calibration.step_clock.record_step", count)
    monkeypatch.setattr("probes.microtrain.calibration.step_clock.clock_step", clocked)
    times = network.measure(24.0, {})
    assert len(counts) == counted
    assert counts[0] == (8, "fp32")
    assert {context.issued.calls for context in times.contexts if context.issued} == {size for size, _ in counts}


def test_the_cores_are_heard_on_both_sides_of_a_long_step(monkeypatch: pytest.MonkeyPatch, clock: FakeClock) -> None:
    """Within which they may turn slow, or calm; beside a short one they are heard once."""
    paces = iter([0.0015, 0.001, 0.001])
    monkeypatch.setattr("probes.microtrain.calibration.turns.read_pace", lambda: next(paces))
    monkeypatch.setattr("probes.microtrain.calibration.step_clock.record_step", lambda _: ([], Issued()))
    monkeypatch.setattr(
        "probes.microtrain.calibration.step_clock.clock_step", lambda step: ClockedStep([step() or 0.001])
    )
    long = FakeRun(clock, seconds=lambda: LONG_SECONDS)
    clocks = [StepClock("a", "training", run, {}, Calm(0.001)) for run in (long, FakeRun(clock))]  # type: ignore[arg-type]
    for each in clocks:
        each.take()
    assert [each.was_calm for each in clocks] == [False, True]
    assert next(paces, None) is None
