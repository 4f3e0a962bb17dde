"""A network on a device. The CPU is asked to be one: it has no clock of its own, as where the profiler is missing."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Callable, Iterator

import pytest
from torch import nn

from probes.microtrain.calibration.device_clock import DeviceCost
from probes.microtrain.calibration.device_networks import LARGER, device_sizes, measure_on_device
from probes.microtrain.calibration.kernel_clock import KernelClock, _answer, clock_network, kernel_context
from probes.microtrain.calibration.networks import MICRO_NETWORKS, MicroNetwork
from probes.microtrain.measuring.workbench import StepRun, Workbench
from probes.microtrain.models import BuiltModel
from probes.microtrain.processes import fresh_processes
from probes.microtrain.traces.recording import Record
from probes.workload.description import Plan

PLANS = (Plan("cpu", "fp32", 1), Plan("cpu", "bf16", 1))


def network(name: str) -> MicroNetwork:
    return next(each for each in MICRO_NETWORKS if each.name == name)


def test_the_smallest_and_the_largest_batch_come_first() -> None:
    assert device_sizes(network("mlp-narrow"), "training") == (8, LARGER * 4096, 512)
    assert device_sizes(network("cnn-norm"), "inference") == (1, LARGER * 64, 16)
    assert device_sizes(network("gru-wide"), "training") == (24, LARGER * 24)


@pytest.mark.filterwarnings("ignore:CUDA is not available")
def test_steps_are_timed_and_what_issuing_takes_is_clocked_at_the_smallest_batch() -> None:
    found = measure_on_device(network("mlp-tiny"), "training", PLANS, math.inf)
    assert {(step.batch_size, step.plan.key) for step in found.steps} == {
        (size, plan.key) for size in (4, LARGER * 2048) for plan in PLANS
    }
    assert {(each.clock, each.batch_size, each.plan.key) for each in found.contexts} == {
        ("host", 4, plan.key) for plan in PLANS
    }
    assert all(each.issued is not None and each.issued.calls > 0 for each in found.contexts)


@pytest.mark.filterwarnings("ignore:CUDA is not available")
def test_late_as_it_is_the_smallest_batch_has_its_turn_under_every_plan() -> None:
    found = measure_on_device(network("mlp-tiny"), "inference", PLANS, 0.0)
    assert {(step.batch_size, step.plan.key) for step in found.steps} == {(1, plan.key) for plan in PLANS}
    assert {each.plan.key for each in found.contexts} == {plan.key for plan in PLANS}


@pytest.fixture
def clock() -> Iterator[KernelClock]:
    fresh_processes.prepare()
    fresh_processes.wait_until_ready()
    found = KernelClock()
    yield found
    found.end()
    fresh_processes.end()


def test_without_a_profiler_there_is_no_context_by_the_devices_clock_and_the_next_question_is_answered(
    clock: KernelClock,
) -> None:
    assert clock.contexts("mlp-tiny", "training", PLANS, 1.0) == []
    assert clock.contexts("mlp-tiny", "inference", PLANS, 0.0) == []


def test_a_process_that_ends_costs_a_network_and_no_more(clock: KernelClock) -> None:
    with pytest.raises(RuntimeError):  # by which the process ends
        list(clock_network("no such network", "training", PLANS, 1.0))
    assert clock.contexts("no such network", "training", PLANS, 1.0) == []
    assert clock.contexts("mlp-tiny", "training", PLANS, 1.0) == []


@pytest.mark.filterwarnings("ignore:CUDA is not available")
@pytest.mark.parametrize(
    ("where", "measure"),
    [
        ("device_networks", lambda: measure_on_device(network("mlp-tiny"), "training", PLANS, 0.0)),
        ("kernel_clock", lambda: _answer(("mlp-tiny", "training", PLANS, 0.0))),
    ],
)
def test_what_a_network_took_of_the_device_is_given_back_before_the_other_process_wants_it(
    where: str, measure: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[weakref.ref[nn.Module]] = []
    held: list[bool] = []
    build = Workbench.build

    def noted(bench: Workbench) -> BuiltModel:
        built = build(bench)
        made.append(weakref.ref(built.module))
        return built

    def empty() -> None:
        gc.collect()  # torch's own imports leave cycles in the first step of a process
        held.append(any(module() is not None for module in made))

    monkeypatch.setattr(Workbench, "build", noted)
    monkeypatch.setattr(f"probes.microtrain.calibration.{where}.empty_device_cache", empty)
    measure()
    assert made
    assert held == [False]


def record(name: str) -> Record:
    return Record("forward", "elementwise", name, "float32", ((4,),), 0, 16, 16)


def test_an_operation_without_kernels_is_in_no_context_and_a_step_that_ran_something_else_does_not_count() -> None:
    run = StepRun(Workbench(network("mlp-tiny").workload("training"), frozenset(["cpu"])), PLANS[0], 4)
    records = [record("aten.add"), record("aten.view"), record("aten.mul")]
    steps = [
        [DeviceCost(2e-6, 1), DeviceCost(0.0, 0), DeviceCost(3e-6, 2)],
        [DeviceCost(2e-6, 1), DeviceCost(0.0, 0), DeviceCost(5e-6, 2)],
        [DeviceCost(1.0, 1)],
    ]
    (context,) = kernel_context("a", "training", run, records, steps)
    assert context.clock == "device"
    took = {cost.operation.name: cost.seconds for cost in context.costs}
    assert took == pytest.approx({"aten.add": 2e-6, "aten.mul": 4e-6})
    assert not list(kernel_context("a", "training", run, records, [steps[2]]))
