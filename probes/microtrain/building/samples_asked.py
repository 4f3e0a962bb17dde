"""Whether a user's make_batch gives the samples that it is asked for: what it gives is told as a step of so many."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from probes.microtrain.building.built import Batch
from probes.microtrain.chance import plain_chance_kept
from probes.microtrain.feeding import MAPPINGS, fields_of, has_fields, parts_of, tensors_in
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
    dimension of it, nor any list in it, has as many as were asked for; and InvalidBatch as refuse_hidden does.

    That is looked at once for each size, and costs a batch of twice as many where no dimension tells; what a function
    cannot make is no matter. Shapes are told apart, not counted: the samples may lie in several dimensions."""
    known: set[int] = set()

    def make_batch(batch_size: int) -> Batch:
        if batch_size in known:
            return make(batch_size)
        batch = make(batch_size)
        shapes = _shapes_of(batch)
        refuse_hidden(f"make_batch of {target} gives", batch)
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
    if isinstance(batch, torch.Tensor | PackedSequence):
        return any(size in tensor.shape for tensor in tensors_in(batch) if not tensor.is_nested)
    return (isinstance(batch, list) and len(batch) == size) or any(_has(value, size) for value in parts_of(batch))


def refuse_hidden(giver: str, batch: Batch) -> None:
    """Raises InvalidBatch where an object in it has tensors of which nobody here knows where they lie, whatever stands
    beside it: they would be neither counted nor put on a device. giver: the words before what it gives."""
    hiding = _hiding(batch)
    if hiding is not None:
        name = type(hiding).__name__
        raise InvalidBatch(
            f"{giver} a {name}, and where its tensors lie is not known here. Give (inputs, targets), a mapping, or a "
            f"dataclass whose fields they are: forward can make a {name}."
        )


def _hiding(batch: Any) -> Any:
    """The first object of it that seems to hold tensors in a way of its own, as PyG's graphs do. None: it has none."""
    if isinstance(batch, torch.Tensor | PackedSequence | type):
        return None
    found = next((found for part in parts_of(batch) if (found := _hiding(part)) is not None), None)
    if found is not None or isinstance(batch, (tuple, list, *MAPPINGS)):
        return found  # a mapping's class may keep its entries as attributes, too
    fields = fields_of(batch) if has_fields(batch) else {}
    beyond = [value for name, value in getattr(batch, "__dict__", {}).items() if name not in fields]
    moves_itself = not fields and callable(getattr(batch, "to", None))
    return batch if moves_itself or _keeps_tensor(beyond) else None


def _keeps_tensor(values: Iterable[Any], deeper: int = 1) -> bool:
    """Whether one of these is a tensor, or keeps one, so many levels down: further down lie whole data sets."""
    return any(
        isinstance(value, torch.Tensor | PackedSequence)
        or (deeper > 0 and _keeps_tensor([*parts_of(value), *getattr(value, "__dict__", {}).values()], deeper - 1))
        for value in values
        if not isinstance(value, type | ModuleType)
    )


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
