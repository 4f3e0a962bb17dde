"""A step's overheads: counted operations, their cost, and the arithmetic over both."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import nn
from torch.nn import functional

from probes.microtrain.feeding import Batch
from probes.microtrain.measuring import overheads
from probes.microtrain.measuring.counting import OperationCounts, count_operations
from probes.microtrain.measuring.overhead_meter import OverheadMeter
from probes.microtrain.measuring.overheads import (
    DispatchCosts,
    cpu_overheads,
    cuda_overheads,
    measure_busy_share,
    measure_dispatch,
    union_length,
)
from probes.microtrain.step import Step, make_step
from probes.workload.description import Plan

PLAN = Plan("cpu", "fp32", 1)


class Deep:
    def __init__(self, depth: int) -> None:
        self.module: nn.Module = nn.Sequential(*(nn.Linear(4, 4) for _ in range(depth)))

    def forward(self, module: nn.Module, batch: Batch) -> Any:
        return module(batch[0])

    def loss(self, output: Any, batch: Batch) -> torch.Tensor:
        return functional.mse_loss(output, batch[1])


def deep_step(depth: int, **fields: Any) -> Step:
    return make_step(Deep(depth), [(torch.randn(2, 4), torch.randn(2, 4))], PLAN, **fields)


def test_operations_grow_with_the_layers_in_model_and_optimizer_alike() -> None:
    few, many = (count_operations(deep_step(depth)) for depth in (2, 12))
    assert few.model > 4
    assert few.optimizer >= 2 * 2
    assert 4 < many.model / few.model < 7
    assert 4 < many.optimizer / few.optimizer < 7


def test_counting_leaves_the_optimizer_as_it_was() -> None:
    step = deep_step(2)
    count_operations(step)
    assert step.optimizer is not None
    assert not step.optimizer._optimizer_step_pre_hooks


def test_inference_has_no_optimizer_and_less_to_dispatch() -> None:
    training, inference = count_operations(deep_step(4)), count_operations(deep_step(4, mode="inference"))
    assert inference.optimizer == 0
    assert 0 < inference.model < training.model


def test_dispatching_costs_something_and_less_than_a_millisecond() -> None:
    costs = measure_dispatch("training", "adamw", "fp32")
    assert costs.model > 1e-8
    assert costs.optimizer > 1e-8
    assert measure_dispatch("inference", "adamw", "bf16").optimizer == 0.0


def test_launch_is_operations_times_their_cost() -> None:
    parts = cpu_overheads(0.01, OperationCounts(100, 50), DispatchCosts(1e-5, 2e-5))
    assert parts.launch_seconds == pytest.approx(0.002)
    assert parts.compute_seconds == pytest.approx(0.008)
    assert parts.device_busy == pytest.approx(0.8)
    assert parts.transfer_seconds == 0.0
    assert parts.synchronize_seconds is not None


def test_launch_is_never_more_than_the_step() -> None:
    parts = cpu_overheads(0.001, OperationCounts(1000, 0), DispatchCosts(1e-5, 0.0))
    assert parts.launch_seconds == 0.001
    assert parts.compute_seconds == 0.0
    assert parts.device_busy == 0.0


def test_kernels_that_overlap_count_once() -> None:
    assert union_length([(5, 6), (0, 2), (1, 3)]) == 4
    assert union_length([]) == 0


def test_a_devices_overheads_leave_out_what_prefetching_hides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(overheads, "measure_transfer", lambda batch, device, pinned: 0.25)
    monkeypatch.setattr(overheads, "measure_launch", lambda step, batch: 0.125)
    step, batch = deep_step(2), (torch.randn(2, 4), torch.randn(2, 4))
    parts = {data: cuda_overheads(step, batch, data, 1.0) for data in ("resident", "pageable", "pinned")}  # type: ignore[arg-type]
    assert {data: part.transfer_seconds for data, part in parts.items()} == {
        "resident": 0.0,
        "pageable": 0.25,
        "pinned": 0.25,
    }
    assert parts["pageable"].compute_seconds == 0.625
    assert parts["pinned"].compute_seconds == parts["resident"].compute_seconds == 0.875
    assert parts["pinned"].device_busy is None  # the profiler comes last


def test_how_busy_a_device_is_goes_by_the_steps_time_and_is_never_more_than_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step, batch = deep_step(2), (torch.randn(2, 4), torch.randn(2, 4))
    monkeypatch.setattr(overheads, "measure_busy_seconds", lambda step, batch: 0.5)
    assert measure_busy_share(step, batch, 2.0) == 0.25
    assert measure_busy_share(step, batch, 0.4) == 1.0
    monkeypatch.setattr(overheads, "measure_busy_seconds", lambda step, batch: None)
    assert measure_busy_share(step, batch, 2.0) is None


def test_a_device_is_idle_before_a_launch_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: log.append("idle"))
    step = deep_step(2)
    step.built.module.register_forward_hook(lambda *_: log.append("step"))
    overheads.measure_launch(step, (torch.randn(2, 4), torch.randn(2, 4)))
    assert log == ["idle", "step"] * overheads.REPEATS + ["idle"]


def test_what_issuing_takes_is_not_told_of_a_model_that_its_owner_compiled() -> None:
    """Counting runs it uncompiled: other operations than its steps have."""
    bench: Any = SimpleNamespace(build=lambda: SimpleNamespace(compiled=True))
    meter, run = OverheadMeter(bench, math.inf), SimpleNamespace(plan=Plan("cpu", "fp32", 1), batch_size=4)
    assert meter._cpu(cast(Any, run), deep_step(2), 1.0) is None
