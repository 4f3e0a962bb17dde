"""The comparison of plain and watched steps sees what differs."""

from __future__ import annotations

from contextlib import nullcontext

import torch

from benchmarks.watched_operations import allocations, differences, step_of
from probes.microtrain.traces.unwatched import unheld


def test_a_step_is_plain_and_watched_alike() -> None:
    unheld()
    leaf = torch.ones(64, requires_grad=True)
    step = step_of(lambda x: x.sin() * x.cos(), [leaf], {})
    assert allocations(step, nullcontext())[256] >= 4  # two results, their product, its gradient
    assert differences(step) == {}
    assert leaf.grad is None


def test_a_further_tensor_is_seen() -> None:
    """Of the largest of a whole tensor torch takes another way while a mode watches (docs/decisions/0018)."""
    unheld()
    leaf = torch.arange(64.0).requires_grad_()
    assert differences(step_of(torch.max, [leaf], {})).get(256, 0) > 0
