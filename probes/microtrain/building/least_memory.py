"""The least memory that a workload can do with, known without taking any: built under fake tensors."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from probes.microtrain.building.fake_models import build_fake
from probes.microtrain.building.remembered_tensors import forget_tensors
from probes.microtrain.feeding import batch_bytes
from probes.workload.description import Workload


@dataclass(frozen=True, slots=True)
class LeastMemory:
    """Bytes. batch_bytes: of one batch of the size asked about. gradients_bytes, optimizer_bytes: of what a step trains
    (None: not known), which no model tells before one was traced: parts of it may get no gradient, or lose it at once.
    Activations are not in here: it takes more."""

    weights_bytes: int
    batch_bytes: int
    gradients_bytes: int | None = None
    optimizer_bytes: int | None = None

    @property
    def trained_bytes(self) -> int:
        return (self.gradients_bytes or 0) + (self.optimizer_bytes or 0)

    @property
    def total_bytes(self) -> int:
        return self.weights_bytes + self.trained_bytes + self.batch_bytes


def estimate_least_memory(workload: Workload, batch_size: int) -> LeastMemory:
    """Of weights, buffers and a batch. Raises InvalidModel, and whatever the user's own Python does. Takes as long as
    building, and no memory for tensors."""
    mode = FakeTensorMode()
    try:
        built = build_fake(workload.model, mode)
    finally:
        forget_tensors()
    with mode:
        batch = batch_bytes(built.batch_for(workload.mode, batch_size))
        weights = sum(_bytes(tensor) for tensor in [*built.module.parameters(), *built.module.buffers()])
    return LeastMemory(weights, batch)


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def why_not_built(least: LeastMemory, limit_bytes: int) -> str:
    gib = 2**30
    return (
        f"The weights alone take {least.weights_bytes / gib:.1f} GiB, and {limit_bytes / gib:.1f} GiB of the host's "
        "memory may be used, in which a model is built to be measured, whatever device it goes to then."
    )


def why_too_large(least: LeastMemory, limit_bytes: int) -> str:
    gib = 2**30
    what = "Weights, gradients, optimizer state and one batch" if least.trained_bytes else "Weights and one batch"
    sgd = ", or plain SGD," if least.optimizer_bytes else ""
    return (
        f"{what} alone take {least.total_bytes / gib:.1f} GiB, and {limit_bytes / gib:.1f} GiB may be used here. "
        f"A smaller model or batch{sgd} would need less."
    )
