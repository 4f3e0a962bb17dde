"""A network on a device. The CPU is asked to be one: it has no clock of its own, as where the profiler is missing."""

import math

import pytest

from probes.microtrain.device_networks import LARGER, device_sizes, measure_on_device
from probes.microtrain.networks import MICRO_NETWORKS, MicroNetwork
from probes.workload.description import Plan

PLANS = (Plan("cpu", "fp32", 1), Plan("cpu", "bf16", 1))


def network(name: str) -> MicroNetwork:
    return next(each for each in MICRO_NETWORKS if each.name == name)


def test_the_smallest_and_the_largest_batch_come_first() -> None:
    assert device_sizes(network("mlp-narrow"), "training") == (8, LARGER * 512, 512)
    assert device_sizes(network("cnn-norm"), "inference") == (1, LARGER * 64, 16)
    assert device_sizes(network("gru-wide"), "training") == (24, LARGER * 24)


@pytest.mark.filterwarnings("ignore:CUDA is not available")
def test_steps_are_timed_and_what_issuing_takes_is_clocked_at_the_smallest_batch() -> None:
    found = measure_on_device(network("mlp-tiny"), "training", PLANS, math.inf)
    assert {(step.batch_size, step.plan.key) for step in found.steps} == {
        (size, plan.key) for size in (4, LARGER * 64) for plan in PLANS
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
