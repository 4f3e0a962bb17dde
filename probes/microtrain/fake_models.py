"""A model under fake tensors: it has shapes and no memory, so that a 70-billion-parameter one can be stepped."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from probes.microtrain.models import BuiltModel, build_model
from probes.workload.description import ModelDescription


def build_fake(description: ModelDescription, mode: FakeTensorMode) -> BuiltModel:
    """Built on the meta device, where values that a constructor asks for (`linspace(…, device="cpu").item()`) are
    still real, then made fake tensors of the CPU. Raises InvalidModel as build_model does."""
    with torch.device("meta"):
        built = build_model(description)
    replace_tensors(built.module, lambda tensor: _fake(tensor, mode))
    return built


def _fake(tensor: torch.Tensor, mode: FakeTensorMode) -> torch.Tensor:
    """The same shape, strides and dtype, on the CPU."""
    with mode:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")


def replace_tensors(module: nn.Module, replace: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Every parameter and buffer replaced; what was shared (tied embeddings) stays shared."""
    done: dict[int, torch.Tensor] = {}
    kept: list[torch.Tensor] = []  # so that no id is given out twice

    def once(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in done:
            new = replace(tensor)
            done[id(tensor)] = nn.Parameter(new, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else new
            kept.append(tensor)
        return done[id(tensor)]

    for child in module.modules():
        for tensors in (child._parameters, child._buffers):
            for name, tensor in tensors.items():
                if tensor is not None:
                    tensors[name] = once(tensor)  # type: ignore[assignment]
        _refresh_flat_weights(child)


def _refresh_flat_weights(module: nn.Module) -> None:
    """Recurrent layers keep a list of their parameters beside them."""
    if isinstance(module, nn.RNNBase):
        module._flat_weights = [getattr(module, name) for name in module._flat_weights_names]
