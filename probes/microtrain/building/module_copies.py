"""A module copied with what its steps run: torch's own copies lose the hooks on gradients, and refuse what is computed
anew for each step."""

from __future__ import annotations

import copy
from typing import TypeVar

import torch
from torch import nn

AModule = TypeVar("AModule", bound=nn.Module)


def copied(module: AModule) -> AModule:
    """With numbers of its own, where this one has its."""
    copies = {id(tensor): tensor.detach().clone() for tensor in computed_tensors(module)}
    new = copy.deepcopy(module, copies)
    for parameter in module.parameters():
        if (own := copies.get(id(parameter))) is not None:
            keep_hooks(parameter, own)
    return new


def keep_hooks(parameter: torch.Tensor, its_copy: torch.Tensor) -> None:
    """Those on its gradient: what clips or masks it, or steps as soon as it is there."""
    if parameter._backward_hooks:
        its_copy._backward_hooks = copy.copy(parameter._backward_hooks)
    if parameter._post_accumulate_grad_hooks:
        its_copy._post_accumulate_grad_hooks = copy.copy(parameter._post_accumulate_grad_hooks)


def computed_tensors(module: nn.Module) -> list[torch.Tensor]:
    """What a module's hooks compute anew for each step (torch.nn.utils.weight_norm, prune)."""
    return [tensor for child in module.modules() for tensor in own_tensors(child) if not tensor.is_leaf]


def own_tensors(module: nn.Module) -> list[torch.Tensor]:
    """Those of its own, not of the modules in it."""
    values = (*module._parameters.values(), *module._buffers.values(), *vars(module).values())
    return [value for value in values if isinstance(value, torch.Tensor)]
