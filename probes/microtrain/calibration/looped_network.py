"""A recurrent network written out as a loop, as its author would who found none ready: small operations, each as often
as there are places. What is run again and again takes half of what it takes once a step."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

PLACES, FEATURES, WIDTH, CLASSES = 32, 20, 64, 10


class Looped(nn.Module):
    """(batch, places, features) -> (batch, classes). A state for each channel that fades at a rate of its own, and a
    gated one (Zhou et al., 2016, "Minimal Gated Unit for Recurrent Neural Networks")."""

    def __init__(self) -> None:
        super().__init__()
        self.entrance = nn.Linear(FEATURES, WIDTH)
        self.fading = nn.Parameter(torch.zeros(WIDTH))
        self.gate = nn.Linear(2 * WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        entered = self.entrance(inputs)
        slow = gated = torch.zeros_like(entered[:, 0])
        states = []
        for place in range(entered.shape[1]):
            now = entered[:, place]
            slow = torch.sigmoid(self.fading) * slow + now
            gate = torch.sigmoid(self.gate(torch.cat([slow, gated], -1)))
            gated = (1 - gate) * gated + gate * torch.tanh(slow)
            states.append(gated)
        return self.head(torch.stack(states, 1).mean(1))


def looped() -> tuple[nn.Module, Callable[[int], tuple[Tensor, Tensor]]]:
    """For probes.microtrain.building.python_models."""

    def make_batch(batch_size: int) -> tuple[Tensor, Tensor]:
        return torch.randn(batch_size, PLACES, FEATURES), torch.randint(CLASSES, (batch_size,))

    return Looped(), make_batch
