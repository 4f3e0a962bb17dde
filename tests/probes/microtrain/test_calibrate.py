"""Calibration: every constant can be measured and says rightly what one execution is."""

from __future__ import annotations

import json
import os
import time
import weakref
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from probes.microtrain.calibrate import (
    CONSTANTS,
    CalibrateJob,
    MakeBenches,
    _make_entry,
    calibrate,
    choose_plans,
    in_turns,
    measure_points,
    most_telling_first,
    refuse_hopeless,
)
from probes.microtrain.calibration import calibration_networks
from probes.microtrain.calibration.network_times import NetworkTimes
from probes.microtrain.calibration.networks import MICRO_NETWORKS
from probes.microtrain.constants import dispatch, kernels, traffic, transfer
from probes.microtrain.constants.bench import Action, Bench
from probes.microtrain.failures import Failure
from probes.microtrain.measuring.contest import Contest
from probes.microtrain.measuring.counting import count_dispatches
from probes.microtrain.plans import Cores
from probes.microtrain.processes.fresh_processes import EndedEarly
from probes.microtrain.quiet.calm import Calm
from probes.microtrain.quiet.noise import Moment, Noise, QueueTime, read_moment
from probes.microtrain.quiet.resting import Rest
from probes.profile import Profile
from probes.workload.description import Plan
from tests.probes.microtrain.brief import SECONDS, be_brief
from tests.probes.microtrain.fake_runs import FakeClock

ONE = Plan("cpu", "fp32", 1)


def all_benches(plan: Plan) -> list[Bench]:
    return [bench for _, make, _ in CONSTANTS for bench in make(plan, "quick")]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_every_bench_runs_and_is_told_from_the_others(precision: str) -> None:
    benches = all_benches(Plan("cpu", precision, 1))  # type: ignore[arg-type]
    names = [(bench.constant, tuple(bench.parameters.items())) for bench in benches]
    assert len(set(names)) == len(names)
    for bench in benches:
        bench.make()()
        assert bench.flops >= 0 <= bench.bytes


@pytest.mark.parametrize(
    "bench",
    [
        bench
        for bench in (*kernels.matmul(ONE, "full"), *kernels.convolution(ONE, "full"))
        if bench.parameters.get("groups", 1) == 1  # torch counts the backward of groups as if there were none
    ],
    ids=lambda bench: f"{bench.constant}-{'-'.join(str(int(v)) for v in bench.parameters.values())}",
)
def test_flops_are_what_torch_counts(bench: Bench) -> None:
    action = bench.make()
    with FlopCounterMode(display=False) as counter:
        action()
    assert counter.get_total_flops() == bench.flops


def test_every_plan_has_its_first_benches_before_any_has_its_last() -> None:
    plans = [Plan("cpu", "fp32", count) for count in (1, 2)]
    rows = [kernels.matmul(plan, "quick") for plan in plans]
    benches = in_turns([rows[0], rows[1][:2]])
    assert [bench.plan for bench in benches[:6]] == [*plans, *plans, plans[0], plans[0]]
    assert len(benches) == len(rows[0]) + 2


def test_a_chain_is_divided_by_the_operations_it_dispatches() -> None:
    for bench in dispatch.dispatch(ONE, "quick"):
        assert count_dispatches(bench.make()) == bench.executions >= dispatch.CHAIN


def test_a_card_has_its_copies_measured_both_ways_and_large_products() -> None:
    card = Plan("cuda:0", "fp32")
    benches = all_benches(card)
    copies = {(b.parameters["pinned"], b.parameters["to_device"]) for b in benches if b.constant == "transfer"}
    assert len(copies) == 4
    assert {b.constant for b in benches} == {name for name, _, _ in CONSTANTS} - {"page-fault"}  # the system's memory
    assert max(b.flops for b in benches) > 1e11
    assert {b.constant for b in all_benches(Plan("cuda:0", "bf16"))} & {"transfer", "launch", "synchronize"} == set()


def test_benches_that_differ_in_anything_but_threads_run_what_is_their_own() -> None:
    """Copies of all sizes once ran the first one's: sixteen megabytes took what a kilobyte takes."""
    plans = (Plan("cuda:0", "fp32"), Plan("cuda:0", "bf16"), Plan("cpu", "fp32", 1), Plan("cpu", "bf16", 1))
    benches = [bench for plan in plans for _, make, _ in CONSTANTS for bench in make(plan, "full")]
    actions: dict[object, object] = {}
    names = [_make_entry(bench, actions, defaultdict(Calm), Rest()).name for bench in benches]  # type: ignore[arg-type]
    assert len(set(names)) == len(benches)


def test_making_what_is_computed_with_is_no_part_of_its_time() -> None:
    """A copy of 67 MB was told 0.11 s, 1.2 GB/s, most of which was drawing random numbers."""
    clock, took = FakeClock(), 0.001

    def make() -> Action:
        clock.now += 0.1
        return action

    def action() -> None:
        clock.now += took

    bench = Bench("bandwidth", Plan("cpu", "fp32", 1), {"elements": 1}, make, 0.0, 8.0)
    entry = _make_entry(bench, {}, defaultdict(Calm), Rest())
    Contest([entry], 1.0, clock.perf_counter).run()
    assert clock.now > 0.1
    assert [entry.first_seconds, entry.warm_seconds, max(entry.samples)] == pytest.approx([took] * 3)


def test_what_ran_but_once_and_cold_is_no_point_of_a_cpu() -> None:
    plan, took = Plan("cpu", "fp32", 1), 0.2
    bench = Bench("bandwidth", plan, {"elements": 1}, lambda: lambda: time.sleep(took), 0.0, 8.0)
    assert measure_points([bench], time.perf_counter() + took / 2, defaultdict(Calm)) == []


def test_what_a_constant_was_measured_with_is_given_back_before_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[weakref.ref[torch.Tensor]] = []
    held: list[bool] = []

    def make() -> Action:
        tensor = torch.zeros(1)
        made.append(weakref.ref(tensor))
        return tensor.sum

    def empty() -> None:
        held.append(any(tensor() is not None for tensor in made))

    monkeypatch.setattr("probes.microtrain.calibrate.empty_device_cache", empty)
    be_brief(monkeypatch.setattr)
    bench = Bench("bandwidth", ONE, {"elements": 1}, make, 0.0, 8.0)
    assert measure_points([bench], time.perf_counter() + SECONDS, defaultdict(Calm))
    assert held == [False]


def test_copies_of_one_size_share_what_they_copy_and_leave_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """On torch's device `meta`, which stands for a card."""
    made: list[int] = []

    def noted(size: int, *, pin_memory: bool, **where: Any) -> torch.Tensor:
        made.append(size)
        return zeros(size, **where)

    zeros = torch.zeros
    monkeypatch.setattr(torch, "zeros", noted)
    benches = transfer.transfer(Plan("meta", "fp32"), "quick")
    kinds = 3  # on the host as it is and pinned, and on the card
    actions = [bench.make() for bench in benches]
    assert len(actions) == 4 * len(transfer.SIZES_QUICK)
    assert sorted(made) == sorted(transfer.SIZES_QUICK * kinds)
    actions.clear()
    benches[0].make()
    assert len(made) == kinds * len(transfer.SIZES_QUICK) + 2


def test_threads_of_one_constant_rest_before_the_next_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[int | None] = []
    monkeypatch.setattr(Rest, "wait_for", lambda rest, process: waited.append(process))
    few, many = (dispatch.dispatch(Plan("cpu", "fp32", threads), "quick")[0] for threads in (1, 3))
    measure_points([few], time.perf_counter() + 0.1, defaultdict(Calm))
    assert waited == []
    measure_points([many], time.perf_counter() + 0.1, defaultdict(Calm))
    assert set(waited) == {os.getpid()}


def test_a_quick_calibration_looks_at_few_thread_counts_of_a_large_machine() -> None:
    large = Cores(128, 64)
    quick = {plan.threads for plan in choose_plans("quick", (), large)}
    full = {plan.threads for plan in choose_plans("full", (), large)}
    assert quick < full
    assert {1, 128} <= quick
    assert not choose_plans("quick", ("cuda:77",), large)


def test_where_cuda_does_not_start_the_cpu_is_calibrated(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(device: str) -> tuple[int, int]:
        raise RuntimeError("Found no NVIDIA driver on your system.")

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr("probes.microtrain.plans.capability_of", fail)
    for devices in ((), ("cpu",), ("cpu", "cuda:0")):
        assert {plan.device for plan in choose_plans("quick", devices, Cores(2))} == {"cpu"}
    assert choose_plans("quick", ("cuda:0",), Cores(2)) == ()


def test_waiting_while_what_forks_is_imported_is_no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is one core both want it; nothing is measured yet."""
    waited = 0.0

    def prepare(_: object) -> None:
        nonlocal waited
        waited += 60.0

    def moment() -> Moment:
        return replace(read_moment(), queue=QueueTime(time.perf_counter(), waited), quota=None)

    monkeypatch.setattr(calibration_networks.NetworkContest, "prepare", prepare)
    monkeypatch.setattr("probes.microtrain.calibrate.read_moment", moment)
    monkeypatch.setattr("probes.microtrain.processes.fresh_processes.prepare", lambda: False)
    noise = calibrate(CalibrateJob("quick", (ONE,), seconds=0.5), lambda *_: None).noise
    assert noise["waiting_fraction"] == 0.0


@pytest.fixture(scope="module")
def profile() -> Iterator[Profile]:
    """Whoever else is at work here while tests run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("probes.microtrain.calibrate.refuse_hopeless", lambda _: None)
        yield calibrate(CalibrateJob("quick", (ONE,), "mine", "a machine", "f", seconds=8.0), lambda *_: None)


def test_a_calibration_is_a_profile(profile: Profile) -> None:
    document = profile.to_json()
    text = json.dumps(document, allow_nan=False)
    assert Profile.from_json(json.loads(text)) == profile
    assert len(text) < 1_000_000
    assert profile.software["torch"] == torch.__version__
    assert profile.process_base_bytes


def test_points_and_networks_have_times(profile: Profile) -> None:
    assert profile.points  # of as many constants as the time does for
    assert {point.constant for point in profile.points} <= {name for name, _, _ in CONSTANTS}
    assert all(point.seconds.median > 0 for point in profile.points)
    assert {point.name for point in profile.networks} <= {network.name for network in MICRO_NETWORKS}
    assert profile.networks


@pytest.mark.parametrize("make", [dispatch.dispatch, kernels.matmul, traffic.elementwise])
def test_the_benches_of_a_constant_are_its_points(make: MakeBenches, monkeypatch: pytest.MonkeyPatch) -> None:
    be_brief(monkeypatch.setattr)
    benches = make(ONE, "quick")[:2]
    points = measure_points(benches, time.perf_counter() + SECONDS, defaultdict(Calm))
    told = [(point.constant, point.parameters, point.flops, point.bytes) for point in points]
    assert told == [(bench.constant, bench.parameters, bench.flops, bench.bytes) for bench in benches]
    assert all(point.seconds.median > 0 for point in points)


def test_what_a_fresh_page_costs_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    be_brief(monkeypatch.setattr)
    again, fresh = measure_points(traffic.page_fault(ONE, "quick"), time.perf_counter() + SECONDS, defaultdict(Calm))
    assert again.parameters["faults"] == 0 < fresh.parameters["faults"]
    assert fresh.bytes == again.bytes


def test_networks_tell_the_pages_they_were_given_anew(profile: Profile) -> None:
    assert max(point.page_faults for point in profile.networks) > 0


@pytest.mark.parametrize(("seconds", "visited"), [(600.0, True), (-1.0, False)])
def test_what_is_quick_to_run_is_visited_twice_while_there_is_time(
    monkeypatch: pytest.MonkeyPatch, seconds: float, visited: bool
) -> None:
    tiny = tuple(network for network in MICRO_NETWORKS if network.name == "mlp-tiny")
    monkeypatch.setattr(calibration_networks, "MICRO_NETWORKS", tiny)
    contest = calibration_networks.NetworkContest((ONE,), {})
    contest.prepare()
    points, contexts = contest.measure(time.perf_counter() + seconds, lambda: None)
    assert bool(contest.visits) == visited
    assert all(ratio >= 1 for ratio in contest.visits)
    assert {point.trace.mode for point in points} == {context.mode for context in contexts} == {"training", "inference"}


@pytest.mark.parametrize(
    ("disturbed", "late", "again"),
    [
        ({}, "", ["a", "c"]),
        ({"b": 0.3}, "", ["b", "a", "c"]),
        ({"c": 0.9, "a": 0.5}, "", ["c", "a"]),
        ({"a": 0.5}, "b", ["b", "a", "c"]),
    ],
)
def test_what_met_slow_cores_or_had_no_time_is_visited_again_first(
    monkeypatch: pytest.MonkeyPatch, disturbed: dict[str, float], late: str, again: list[str]
) -> None:
    """And then what needs little time: here two of three."""
    contest = calibration_networks.NetworkContest((ONE,), {})
    needs = {"a": 0.3, "b": 5.0, "c": 0.3}
    rows = [SimpleNamespace(name=name, need=need) for name, need in needs.items()]
    found = {
        id(row): [NetworkTimes([], [], None, disturbed=disturbed.get(row.name, 0.0), missed=float(row.name == late))]
        for row in rows
    }
    monkeypatch.setattr(contest, "_rows", rows)
    visits = contest._visits(found)  # type: ignore[arg-type]
    assert [row.name for row in visits][len(rows) :] == again  # type: ignore[attr-defined]


def test_a_network_that_is_killed_is_not_visited_again_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be killed again, in the time of those that met slow cores."""
    killed = 0

    def run_fresh(*_: object) -> NetworkTimes:
        nonlocal killed
        killed += 1
        raise EndedEarly

    one = tuple(network for network in MICRO_NETWORKS if network.name == "mlp-vast")
    monkeypatch.setattr(calibration_networks, "MICRO_NETWORKS", one)
    monkeypatch.setattr(calibration_networks, "REVISITED_SECONDS", 0.0)
    monkeypatch.setattr("probes.microtrain.processes.fresh_processes.run_fresh", run_fresh)
    monkeypatch.setattr("probes.microtrain.processes.fresh_processes.wait_until_ready", lambda: None)
    contest = calibration_networks.NetworkContest((ONE,), {})
    contest.prepare()
    assert contest.measure(time.perf_counter() + 600.0, lambda: None) == ([], [])
    assert killed == 1


def test_every_network_says_what_its_operations_take_where_they_run(profile: Profile) -> None:
    assert profile.contexts
    for context in profile.contexts:
        assert sum(cost.times for cost in context.costs) > 3
        assert all(cost.seconds > 0 for cost in context.costs)
    names = {cost.operation.name for context in profile.contexts for cost in context.costs}
    assert {"aten.mm", "aten.relu", "aten.sqrt"} <= names


def test_a_machine_that_others_hold_is_not_calibrated() -> None:
    quiet = Noise(0.1, 0.0, 0.0, 0.0, 0.0, 0.02)
    refuse_hopeless(quiet)
    crowded = Noise(9.0, 0.0, 2.0, 0.95, 100.0, 2.0)
    with pytest.raises(Failure, match="quieter") as caught:
        refuse_hopeless(crowded)
    assert caught.value.code == "too-busy"


@pytest.mark.parametrize(
    ("contention", "waiting", "held"),
    [(0.85, 0.75, "85% of the cores"), (0.1, 0.75, "75% of the time"), (0.6, None, "60% of the cores")],
)
def test_nor_is_one_where_nothing_was_timed_twice_and_others_had_half_the_time(
    contention: float, waiting: float | None, held: str
) -> None:
    noise = Noise(8.0, 0.0, 2.0, contention, 100.0, None, waiting)
    with pytest.raises(Failure, match=f"{held}, and nothing could be timed often enough") as caught:
        refuse_hopeless(noise)
    assert caught.value.code == "too-busy"
    refuse_hopeless(replace(noise, spread=0.3))
    refuse_hopeless(replace(noise, contention=0.2, waiting_fraction=0.2))


def test_a_devices_roof_is_measured_first() -> None:
    """Where many cores' plans have their turns too, the time may do for no more than that."""
    card = Plan("cuda:0", "bf16")
    shapes = [bench.flops for bench in most_telling_first(card, kernels.matmul(card, "full"))]
    assert shapes[0] == max(shapes)
    mine = kernels.matmul(ONE, "full")
    assert list(most_telling_first(ONE, mine)) == mine
    copies = transfer.transfer(Plan("cuda:0", "fp32"), "full")
    assert list(most_telling_first(card, copies)) == copies
