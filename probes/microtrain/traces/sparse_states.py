"""Which of an optimizer's states are mostly zeros: a batch looks few rows of a large table up, and those alone get a
gradient.

What reads zeros may take longer: sqrt takes four times as long (MKL's, which torch calls; EPYC, Zen 5, torch 2.13).
"""

from __future__ import annotations

import torch
from torch import nn

TABLES = (nn.Embedding, nn.EmbeddingBag)


def sparse_states(module: nn.Module, optimizer: torch.optim.Optimizer | None) -> frozenset[int]:
    """Identities of the state tensors of tables that nothing but looking up reads: what is tied to an output layer gets
    a gradient everywhere."""
    if optimizer is None:
        return frozenset()
    modules = list(module.modules())
    tables = {id(each.weight) for each in modules if isinstance(each, TABLES)}
    others = {id(p) for each in modules if not isinstance(each, TABLES) for p in each.parameters(recurse=False)}
    return frozenset(
        id(value)
        for parameter, state in optimizer.state.items()
        if id(parameter) in tables - others
        for value in state.values()
        if isinstance(value, torch.Tensor) and value.shape == parameter.shape
    )


def has_sparse_gradients(module: nn.Module) -> bool:
    """Whether a table that is trained gets gradients of the rows alone that a batch looks up."""
    tables = [each for each in module.modules() if isinstance(each, TABLES)]
    return any(each.sparse and each.weight.requires_grad for each in tables)
