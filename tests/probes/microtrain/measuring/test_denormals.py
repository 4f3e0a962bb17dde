"""Denormals are found where a step makes them, and none are made where they are flushed."""

from __future__ import annotations

import pytest
import torch

from probes.microtrain.measuring.denormals import count_denormals
from probes.workload.description import ModelDescription, Plan, Workload
from tests.probes.microtrain import brief
from tests.probes.microtrain.pipes import Pipes, started_child
from tests.probes.microtrain.test_measure import BF16, MLP, ONE, measure

FADING = Workload(
    ModelDescription("python", "fading", {"target": "tests.probes.microtrain.fading:fading"}), 16, "inference"
)
FLUSHING = Plan("cpu", "fp32", 1, flush_denormal=True)


def can_flush() -> bool:
    can = torch.set_flush_denormal(True)
    torch.set_flush_denormal(False)
    return can


def test_numbers_without_a_full_fraction_are_counted_and_zeros_are_none() -> None:
    numbers = [0.0, -0.0, 1e-40, -1e-45, 1.2e-38, 1.0, float("inf"), float("nan")]
    assert count_denormals(torch.tensor(numbers)) == 2
    assert count_denormals(torch.tensor([1e-40, 1e-30], dtype=torch.bfloat16)) == 1
    assert count_denormals(torch.tensor([1e-40, 1e-310], dtype=torch.float64)) == 1


def test_a_network_whose_signal_fades_is_found_out_in_each_precision(child: Pipes) -> None:
    fp32, bf16 = measure(child, FADING, ONE, BF16)
    assert (fp32.denormal_share or 0) > 0.01
    assert bf16.denormal_share is not None


def test_an_ordinary_network_makes_none(child: Pipes) -> None:
    (row,) = measure(child, Workload(MLP, 4), ONE)
    assert row.denormal_share == 0.0


@pytest.mark.skipif(not can_flush(), reason="this CPU has no mode that flushes denormals")
def test_flushed_they_are_gone() -> None:
    with started_child(program=brief.PROGRAM) as child:
        (row,) = measure(child, FADING, FLUSHING)
    assert (row.outcome, row.plan, row.denormal_share) == ("ok", FLUSHING, 0.0)


def test_plans_that_flush_are_measured_in_a_job_of_their_own(child: Pipes) -> None:
    plain, refused = measure(child, Workload(MLP, 4), ONE, FLUSHING)
    assert (plain.outcome, refused.outcome) == ("ok", "unsupported")
    assert "denormals flushed" in (refused.reason or "")
