"""What makes a device lose on small work, in seconds for the workload at hand: copying the batch, issuing operations,
reading results back; and how busy the device is in what remains.

On a CUDA device each is measured by itself on an idle queue. On a CPU nothing is copied, and issuing cannot be told
apart from computing by a clock: there it is the number of operations that this very step dispatches, times what one
operation costs on tensors so small that computing them takes no time, autograd included.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from probes.measurement import Overheads
from probes.microtrain import feeding
from probes.microtrain.feeding import Batch, ResidentFeed, to_device
from probes.microtrain.measuring.altered_batches import copied_at
from probes.microtrain.measuring.counting import OperationCounts, count_operations
from probes.microtrain.step import Step, applied, make_optimizer
from probes.workload.description import Data, Mode, OptimizerName, Plan, Precision

REPEATS = 5
READINGS = 20
TINY_LAYERS = 8
TINY_STEPS = 20  # about 5 ms a block
BLOCKS = 5
MOST_SECONDS = 0.2  # for one figure


@dataclass(frozen=True, slots=True)
class DispatchCosts:
    """Seconds that one operation costs when there is nothing to compute."""

    model: float
    optimizer: float


class _TinyNetwork:
    """Linear layers of 4 units over 2 rows, with ReLU and layer norm between: all dispatch, no work."""

    def __init__(self) -> None:
        parts: list[nn.Module] = []
        for _ in range(TINY_LAYERS):
            parts += [nn.Linear(4, 4), nn.ReLU(), nn.LayerNorm(4)]
        self.module: nn.Module = nn.Sequential(*parts)

    def forward(self, module: nn.Module, batch: Batch) -> Any:
        return module(batch[0])

    def loss(self, output: Any, batch: Batch) -> torch.Tensor:
        return functional.mse_loss(output, batch[1])


def measure_dispatch(mode: Mode, optimizer: OptimizerName, precision: Precision) -> DispatchCosts:
    """On the CPU, about 50 ms. With one thread: there is nothing to share out, and nobody to wait for."""
    with applied(Plan("cpu", precision, 1)):
        return _measure_dispatch(mode, optimizer, precision)


def _measure_dispatch(mode: Mode, optimizer: OptimizerName, precision: Precision) -> DispatchCosts:
    network = _TinyNetwork()
    network.module.train(mode == "training")
    stepper = make_optimizer(optimizer, network.module) if mode == "training" else None
    cpu = torch.device("cpu")
    feed = ResidentFeed([(torch.randn(2, 4), torch.randn(2, 4))], cpu)
    step = Step(network, network.module, stepper, feed, cpu, precision)
    counts = count_operations(step)
    inside = _time_optimizer(stepper)
    model, optimizing = [], []
    for _ in range(BLOCKS + 1):
        inside.clear()
        begun = time.perf_counter()
        for _ in range(TINY_STEPS):
            step.compute(feed.next())
        seconds = time.perf_counter() - begun
        optimizing.append(sum(inside) / TINY_STEPS)
        model.append(seconds / TINY_STEPS - optimizing[-1])
    return DispatchCosts(median(model[1:]) / counts.model, median(optimizing[1:]) / max(1, counts.optimizer))


def _time_optimizer(optimizer: torch.optim.Optimizer | None) -> list[float]:
    """Grows by the seconds of every `optimizer.step()` from now on."""
    seconds: list[float] = []
    begun: list[float] = []
    if optimizer is not None:
        optimizer.register_step_pre_hook(lambda *_: begun.append(time.perf_counter()))
        optimizer.register_step_post_hook(lambda *_: seconds.append(time.perf_counter() - begun.pop()))
    return seconds


def cpu_overheads(step_seconds: float, counts: OperationCounts, costs: DispatchCosts) -> Overheads:
    """Arithmetic only: operations times what each costs, at most the whole step."""
    launch = min(step_seconds, counts.model * costs.model + counts.optimizer * costs.optimizer)
    scalar = torch.zeros(())
    return Overheads(
        transfer_seconds=0.0,
        launch_seconds=launch,
        synchronize_seconds=_median_seconds(scalar.item, READINGS),
        compute_seconds=step_seconds - launch,
        device_busy=1.0 - launch / step_seconds if step_seconds > 0 else None,
    )


def cuda_overheads(step: Step, host_batch: Batch, data: Data, step_seconds: float) -> Overheads:
    """host_batch: one batch on the CPU. A dozen steps' time. How busy the device is has to be asked apart, and last.

    launch: the host's time to issue a step onto an idle queue. A queue holds about a thousand launches; a step with
    more of them waits for the device within it. With fp16 the gradient scaler is left out here, since it reads its
    own result back and would make the host wait for the whole step.
    """
    device = step.device
    transfer = 0.0 if data == "resident" else measure_transfer(host_batch, device, pinned=data == "pinned")
    launch = min(measure_launch(step, to_device(host_batch, device)), step_seconds)
    visible = 0.0 if data == "pinned" else transfer  # fetched ahead, on a stream of its own
    return Overheads(
        transfer_seconds=transfer,
        launch_seconds=launch,
        synchronize_seconds=measure_reading(device),
        compute_seconds=max(0.0, step_seconds - launch - visible),
    )


def measure_busy_share(step: Step, host_batch: Batch, step_seconds: float) -> float | None:
    """Of a step on a device, for which share the device computes; None where nobody can tell. To be asked last: once
    a profiler has watched, issuing takes longer in this process (on an H200's host, issuing a training step alone took
    1.16 times what whole steps had taken before; median of 253 plans and batch sizes; torch 2.11, CUDA 13.0)."""
    busy = measure_busy_seconds(step, to_device(host_batch, step.device))
    return None if busy is None or step_seconds <= 0 else min(1.0, busy / step_seconds)


def measure_transfer(host_batch: Batch, device: torch.device, *, pinned: bool) -> float:
    """Seconds from asking for the copy to its end."""
    source = feeding.pinned([host_batch])[0] if pinned else host_batch

    def copy() -> None:
        to_device(source, device, non_blocking=pinned)
        torch.cuda.synchronize(device)

    return _median_seconds(copy, 1)


def measure_launch(step: Step, batch: Batch) -> float:
    """Seconds until the host is free again, each time onto an idle queue."""
    bare = step.without_scaler()
    seconds = []
    for given in _for_repeats(step, batch):
        torch.cuda.synchronize(step.device)
        begun = time.perf_counter()
        bare.compute(given)
        seconds.append(time.perf_counter() - begun)
    torch.cuda.synchronize(step.device)
    return median(seconds)


def measure_reading(device: torch.device) -> float:
    """Seconds of `.item()` when the device has nothing left to do."""
    scalar = torch.zeros((), device=device)
    torch.cuda.synchronize(device)
    return _median_seconds(scalar.item, READINGS)


def measure_busy_seconds(step: Step, batch: Batch) -> float | None:
    """Seconds of one step in which the device computes: the union of its kernels' times, from torch's profiler.

    None where the profiler sees no kernels (CUPTI missing or taken by another profiler).
    """
    from torch.profiler import ProfilerActivity, profile

    try:
        batches = _for_repeats(step, batch)
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            for given in batches:
                step.compute(given)
            torch.cuda.synchronize(step.device)
        intervals = [
            (event.time_range.start, event.time_range.end)
            for event in profiler.events() or ()
            if event.device_type.name == "CUDA" and not getattr(event, "is_user_annotation", False)
        ]
    except RuntimeError:
        return None
    return union_length(intervals) * 1e-6 / REPEATS if intervals else None


def _for_repeats(step: Step, batch: Batch) -> list[Batch]:
    """The batch as often as it is needed; copies where steps alter it."""
    altered = step.altered
    return [batch if altered is None else copied_at(batch, altered) for _ in range(REPEATS)]


def union_length(intervals: list[tuple[float, float]]) -> float:
    """Length that the intervals cover together; overlaps count once."""
    covered, reached = 0.0, float("-inf")
    for start, end in sorted(intervals):
        covered += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return covered


def _median_seconds(action: Callable[[], object], executions: int) -> float:
    """Seconds of one execution: the median over blocks, after one that is not counted; fewer on a crowded machine."""
    blocks: list[float] = []
    started = time.perf_counter()
    while len(blocks) < 2 or (len(blocks) <= BLOCKS and time.perf_counter() - started < MOST_SECONDS):
        begun = time.perf_counter()
        for _ in range(executions):
            action()
        blocks.append((time.perf_counter() - begun) / executions)
    return median(blocks[1:])
