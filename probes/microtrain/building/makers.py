"""What makes one tensor of a batch, for any number of samples."""

from __future__ import annotations

from collections.abc import Callable

import torch

from probes.microtrain.traces.number_facts import FILLED

Make = Callable[[int, torch.Generator | None], torch.Tensor]


def noise(*shape: int) -> Make:
    return lambda batch_size, generator: torch.randn(batch_size, *shape, generator=generator)


def integers(low: int, high: int, *shape: int) -> Make:
    return lambda batch_size, generator: torch.randint(
        low, max(high, low + 1), (batch_size, *shape), generator=generator
    )


def repeated(*numbers: int) -> Make:
    """These numbers, in every sample."""
    if len(set(numbers)) == 1:  # by which they are known where there are none
        return filled(numbers[0], len(numbers))
    return lambda batch_size, _: torch.tensor(numbers).repeat(batch_size, 1)


def filled(number: int, *shape: int) -> Make:
    def make(batch_size: int, _: torch.Generator | None) -> torch.Tensor:
        tensor = torch.full((batch_size, *shape), number)
        setattr(tensor, FILLED, number)
        return tensor

    return make
