"""Whether a user's make_batch gives the samples that it is asked for: what it gives is told as a step of so many."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from probes.microtrain.building.built import Batch
from probes.microtrain.chance import plain_chance_kept
from probes.microtrain.feeding import tensors_in
from probes.workload.description import InvalidModel

# Batches that are rounded up, or packed into rows of many samples, become larger somewhere up to here.
_FURTHER = (2, 16, 128)

Shapes = tuple[tuple[int, ...], ...]


class InvalidBatch(InvalidModel):
    """A batch that does not fit what is asked of it, whether its numbers are real or not."""


class OtherSamples(InvalidBatch):
    """A batch of another number of samples than was asked for. Of one size, that of a data set which is the batch of
    every step, it may be the right one all the same."""


def asked_for_samples(target: str, make: Callable[[int], Batch]) -> Callable[[int], Batch]:
    """The same function, which raises OtherSamples where a batch is no larger than one of clearly fewer samples, nor
    than any of more, and has not just as many as were asked for.

    That is looked at once for each size, and costs a smaller batch; what a function cannot make is no matter. Shapes
    are told apart, not counted: the samples may lie in any dimension, or in several."""
    known: set[int] = set()

    def make_batch(batch_size: int) -> Batch:
        if batch_size in known:
            return make(batch_size)
        other = batch_size * 3 // 4 or 2
        shapes = _shapes_at(make, other)  # first, so that it is gone before the batch is there
        batch = make(batch_size)
        has_them = any(shape[0] == batch_size for shape in shapes)
        if shapes and shapes == _shapes_of(batch) and not has_them and _is_largest(make, batch_size, shapes):
            raise OtherSamples(
                f"make_batch of {target} gives batches of the same shapes for {batch_size} samples and for {other}. "
                "Give as many samples as it is asked for; where there are fewer, take some of them again."
            )
        known.add(batch_size)
        return batch

    return make_batch


def _is_largest(make: Callable[[int], Batch], batch_size: int, shapes: Shapes) -> bool:
    """Whether batches of many more samples have these shapes, too."""
    samples = max(batch_size, *(shape[0] for shape in shapes))
    return all(_shapes_at(make, factor * samples) == shapes for factor in _FURTHER)


def _shapes_at(make: Callable[[int], Batch], batch_size: int) -> Shapes:
    """Of a batch that is not used: chance goes on as if it had not been made. Empty where it cannot be made."""
    with plain_chance_kept(), torch.random.fork_rng(devices=[]):
        try:
            return _shapes_of(make(batch_size))
        except Exception:  # noqa: BLE001 - whatever a function raises at a size that nobody asked for
            return ()


def _shapes_of(batch: Any) -> Shapes:
    """Of its tensors that have dimensions. Empty: it has none, or some whose shapes are not told."""
    tensors = list(tensors_in(batch))
    if any(tensor.is_nested for tensor in tensors):
        return ()
    return tuple(tuple(tensor.shape) for tensor in tensors if tensor.dim())
