"""The least memory that a workload can do with, known without taking any: built under fake tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeGuard

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from probes.microtrain.building.fake_models import build_fake
from probes.microtrain.building.remembered_tensors import forget_tensors
from probes.microtrain.feeding import batch_bytes
from probes.workload.description import OptimizerName, Workload

# fp32 values that an optimizer keeps for each parameter (torch.optim's defaults; checked against steps in the tests).
STATE_VALUES: dict[OptimizerName, int] = {
    "sgd": 0,
    "sgd-momentum": 1,
    "adam": 2,
    "adamw": 2,
    "rmsprop": 1,
    "adagrad": 1,
}


@dataclass(frozen=True, slots=True)
class LeastMemory:
    """Bytes. batch_bytes: of one batch of the size asked about. Activations are not in here: it takes more."""

    weights_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    batch_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.weights_bytes + self.gradients_bytes + self.optimizer_bytes + self.batch_bytes


def estimate_least_memory(workload: Workload, batch_size: int) -> LeastMemory:
    """Raises InvalidModel. Takes as long as building, and no memory for tensors."""
    mode = FakeTensorMode()
    try:
        built = build_fake(workload.model, mode)
    finally:
        forget_tensors()
    with mode:
        batch = batch_bytes(built.make_batch(batch_size, None))
        parameters = list(built.module.parameters())
        weights = sum(_bytes(tensor) for tensor in [*parameters, *built.module.buffers()])
        trained = [tensor for tensor in parameters if tensor.requires_grad and not _may_lose_gradient(tensor)]
        state = STATE_VALUES[workload.optimizer] * sum(_bytes(tensor) for tensor in trained)
        modules = [*built.module.modules()]
        sparse = {id(module.weight) for module in modules if _has_sparse_gradient(module)}
        sparse -= {id(p) for module in modules if not _has_sparse_gradient(module) for p in module._parameters.values()}
        gradients = sum(_bytes(tensor) for tensor in trained if id(tensor) not in sparse)
    if workload.mode == "inference":
        return LeastMemory(weights, 0, 0, batch)
    return LeastMemory(weights, gradients, state, batch)


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _may_lose_gradient(parameter: torch.Tensor) -> bool:
    """As soon as it is there, where an optimizer steps within the backward."""
    return bool(parameter._post_accumulate_grad_hooks)


def _has_sparse_gradient(module: nn.Module) -> TypeGuard[nn.Embedding | nn.EmbeddingBag]:
    """Of the rows that a batch looks up, which are few of many; unless another layer takes the same weights."""
    return isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse


def why_not_built(least: LeastMemory, limit_bytes: int) -> str:
    gib = 2**30
    return (
        f"The weights alone take {least.weights_bytes / gib:.1f} GiB, and {limit_bytes / gib:.1f} GiB of the host's "
        "memory may be used, in which a model is built to be measured, whatever device it goes to then."
    )


def why_too_large(least: LeastMemory, limit_bytes: int) -> str:
    gib = 2**30
    sgd = ", or plain SGD," if least.optimizer_bytes else ""
    return (
        f"Weights, gradients, optimizer state and one batch alone take {least.total_bytes / gib:.1f} GiB, and "
        f"{limit_bytes / gib:.1f} GiB may be used here. A smaller model or batch{sgd} would need less."
    )
