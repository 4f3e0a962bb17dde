"""A network whose signal fades from layer to layer until numbers have no full fraction any more."""

from __future__ import annotations

import torch
from torch import nn


class Fading(nn.Module):
    """Four layers, each 10 thousand million times weaker than the one before: the last is at 1e-40."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(256, 256, bias=False) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x).mul(1e-10)
        return x.abs().sqrt()


def fading() -> tuple[nn.Module, tuple[torch.Tensor, torch.Tensor]]:
    return Fading(), (torch.randn(8, 256), torch.randn(8, 256))
