"""Whether a user's make_batch gives the samples that it is asked for: what it gives is told as a step of so many."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from probes.microtrain.building.built import Batch
from probes.microtrain.chance import plain_chance_kept
from probes.microtrain.feeding import tensors_in
from probes.workload.description import InvalidModel

# Batches that are rounded up, or packed into rows of many samples, become larger somewhere up to here; or at twice as
# many samples as the batch has rows, where it is filled up to more.
_FURTHER = (2, 16, 128)

Shapes = tuple[tuple[int, ...], ...]


class InvalidBatch(InvalidModel):
    """A batch that does not fit what is asked of it, whether its numbers are real or not."""


class OtherSamples(InvalidBatch):
    """A batch of another number of samples than was asked for. Of one size, that of a data set which is the batch of
    every step, it may be the right one all the same."""


def asked_for_samples(target: str, make: Callable[[int], Batch]) -> Callable[[int], Batch]:
    """The same function, which raises OtherSamples where a batch is no smaller than those of many more samples, and no
    dimension of it, nor any list in it, has as many as were asked for.

    That is looked at once for each size, and costs a batch of twice as many where no dimension tells; what a function
    cannot make is no matter. Shapes are told apart, not counted: the samples may lie in several dimensions."""
    known: set[int] = set()

    def make_batch(batch_size: int) -> Batch:
        if batch_size in known:
            return make(batch_size)
        batch = make(batch_size)
        shapes = _shapes_of(batch)
        if shapes and not _has(batch, batch_size) and _is_largest(make, batch_size, shapes):
            raise OtherSamples(
                f"make_batch of {target} gives batches of the same shapes for {batch_size} samples and for many more. "
                "Give as many samples as it is asked for; where there are fewer, take some of them again."
            )
        known.add(batch_size)
        return batch

    return make_batch


def _has(batch: Any, size: int) -> bool:
    """Whether a dimension or a list of it has so many."""
    if isinstance(batch, Mapping):
        return any(_has(value, size) for value in batch.values())
    if isinstance(batch, tuple | list):
        return (isinstance(batch, list) and len(batch) == size) or any(_has(value, size) for value in batch)
    return any(size in tensor.shape for tensor in tensors_in(batch) if not tensor.is_nested)


def _is_largest(make: Callable[[int], Batch], batch_size: int, shapes: Shapes) -> bool:
    """Whether batches of many more samples have these shapes, too."""
    further = {factor * batch_size for factor in _FURTHER} | {2 * shape[0] for shape in shapes}
    return all(_shapes_at(make, size) == shapes for size in sorted(further) if size > batch_size)


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
