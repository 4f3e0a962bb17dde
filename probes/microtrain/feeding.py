"""How batches reach the device: the first part of a step."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping, Sequence
from copy import copy
from dataclasses import fields, is_dataclass
from itertools import cycle
from typing import Any, Protocol

import torch
from torch.nn.utils.rnn import PackedSequence

from probes.workload.description import Data

# Most are dicts, and an abstract class is asked by two calls more, in every step.
MAPPINGS = (dict, Mapping)

Batch = Any  # a tensor, or tuples, lists, mappings and dataclasses of them; other values pass through as they are


class NoPinnedMemory(RuntimeError):
    """The host has not as much memory to pin as the batches take; the message says so."""


class Feed(Protocol):
    """Gives one batch on the device a call; the batches come round and round.

    held_bytes: of the batches that it keeps on the device from step to step."""

    held_bytes: int

    def next(self) -> Batch: ...


def make_feed(batches: Sequence[Batch], device: torch.device, data: Data) -> Feed:
    """batches: at least one, on the CPU. On a CPU every way is the same: the batch is there already.

    Raises ValueError without batches, NoPinnedMemory, and torch's own errors when memory runs out.
    """
    if not batches:
        raise ValueError("a feed needs at least one batch")
    if data == "pinned" and device.type == "cuda":
        return PinnedFeed(batches, device)
    if data == "resident":
        return ResidentFeed(batches, device)
    return PageableFeed(batches, device)


class ResidentFeed:
    """Every batch was put on the device before the first step."""

    def __init__(self, batches: Sequence[Batch], device: torch.device) -> None:
        self._batches = [to_device(batch, device) for batch in batches]
        self._put = [_ids_in(batch) for batch in self._batches]  # a step may take what it likes out of its batch
        self._ring = _round_and_round(self._batches)
        self.held_bytes = sum(batch_bytes(batch) for batch in batches)
        self._device = device

    def next(self) -> Batch:
        return next(self._ring)

    def put_anew(self, spoilt: Collection[int], batches: Sequence[Batch]) -> None:
        """From these, as many as there were, each that had a tensor with one of these ids, which live still."""
        for place, put in enumerate(self._put):
            if not put.isdisjoint(spoilt):
                self._batches[place] = to_device(batches[place], self._device)
                self._put[place] = _ids_in(self._batches[place])


class PageableFeed:
    """Each step copies its batch from ordinary memory, and waits for it. What takes a batch's place in the sequence is
    fed from then on."""

    def __init__(self, batches: Sequence[Batch], device: torch.device) -> None:
        self._ring = _round_and_round(batches)
        self.held_bytes = 0
        self._device = device

    def next(self) -> Batch:
        return to_device(next(self._ring), self._device)


def _round_and_round(batches: Sequence[Batch]) -> Iterator[Batch]:
    """itertools.cycle would remember what lay there in its first round."""
    while True:
        yield from batches


class PinnedFeed:
    """Batches lie in pinned memory, as a loader's pinning thread leaves them; while one is computed on, the next is
    copied on a stream of its own."""

    def __init__(self, batches: Sequence[Batch], device: torch.device) -> None:
        self._ring = cycle(pinned(batches))
        self._device = device
        self._side = torch.cuda.Stream(device)
        self._ahead = self._start_copy()
        self.held_bytes = batch_bytes(batches[0])

    def next(self) -> Batch:
        batch = self._ahead
        stream = torch.cuda.current_stream(self._device)
        stream.wait_stream(self._side)
        for tensor in tensors_in(batch):
            tensor.record_stream(stream)  # its memory may not be handed out again before this stream is done with it
        self._ahead = self._start_copy()
        return batch

    def _start_copy(self) -> Batch:
        with torch.cuda.stream(self._side):
            return to_device(next(self._ring), self._device, non_blocking=True)


def pinned(batches: Sequence[Batch]) -> list[Batch]:
    """The same in pinned memory. Raises NoPinnedMemory: the driver says of that, too, only that memory ran out."""
    try:
        return [_map_distinct(batch, torch.Tensor.pin_memory) for batch in batches]
    except RuntimeError as error:
        if "out of memory" not in str(error).lower():
            raise
    # Not while that error is handled: its frames hold on to what was pinned.
    megabytes = sum(batch_bytes(batch) for batch in batches) / 1e6
    raise NoPinnedMemory(
        f"The host had no {megabytes:.0f} MB of pinned memory, which {len(batches)} batches take that are fed from "
        "there. A smaller batch would do, and so would pageable data."
    )


def to_device(batch: Batch, device: torch.device, *, non_blocking: bool = False) -> Batch:
    """The same batch with every tensor on the device; tensors that are there already are not copied."""

    def moved(tensor: torch.Tensor) -> torch.Tensor:
        there = tensor.to(device, non_blocking=non_blocking)
        return there if there.is_leaf else as_leaf(there)  # no call more in a step, whose calls are counted

    return _map_distinct(batch, moved)


def as_leaf(tensor: torch.Tensor) -> torch.Tensor:
    """An input that asks for its gradient, as one that a script has made: not what a copy or a choice of rows computed
    from another, through which a second backward would fail, and every one would go back to where it was."""
    return tensor if tensor.is_leaf else tensor.detach().requires_grad_()


def own_copy(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers in memory that nothing else has, as an input that a script has made."""
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def map_tensors(batch: Batch, change: Callable[[torch.Tensor], torch.Tensor]) -> Batch:
    """The same structure with every tensor changed; but how long packed sequences are stays on the CPU, where torch
    wants it."""
    if isinstance(batch, torch.Tensor):
        return change(batch)
    if isinstance(batch, PackedSequence):
        data, lengths, *orders = batch
        return PackedSequence(change(data), lengths, *(map_tensors(order, change) for order in orders))
    return map_parts(batch, lambda value: map_tensors(value, change))


def _map_distinct(batch: Batch, change: Callable[[torch.Tensor], torch.Tensor]) -> Batch:
    """The same, and each tensor once: labels that are the inputs themselves stay so."""
    known: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # with the tensor itself, or another had its number

    def once(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in known:
            known[id(tensor)] = tensor, change(tensor)
        return known[id(tensor)][1]

    return map_tensors(batch, once)


def map_parts(batch: Batch, change: Callable[[Any], Any]) -> Batch:
    """The same structure with each part of it changed; itself, where it has none."""
    if isinstance(batch, tuple | list):
        return alike(batch, [change(value) for value in batch])
    if isinstance(batch, MAPPINGS):
        return alike_entries(batch, {name: change(value) for name, value in batch.items()})
    if not has_fields(batch):
        return batch
    new = copy(batch)
    for name, value in fields_of(batch).items():
        object.__setattr__(new, name, change(value))  # a frozen one's own refuses
    return new


def parts_of(batch: Batch) -> Iterable[Any]:
    """What map_parts changes, in that order."""
    if isinstance(batch, tuple | list):
        return batch
    if isinstance(batch, MAPPINGS):
        return batch.values()
    return fields_of(batch).values() if has_fields(batch) else ()


def has_fields(batch: Batch) -> bool:
    """Whether it is a dataclass's instance."""
    return is_dataclass(batch) and not isinstance(batch, type)


def fields_of(batch: Batch) -> dict[str, Any]:
    """Of a dataclass's instance, those that it has."""
    names = (field.name for field in fields(batch))
    return {name: getattr(batch, name) for name in names if hasattr(batch, name)}


def alike(like: Any, items: Iterable[Any]) -> Any:
    """A tuple or list of the same class: a named tuple takes its fields one by one."""
    return type(like)(*items) if hasattr(like, "_fields") else type(like)(items)


def alike_entries(like: Mapping[Any, Any], entries: dict[Any, Any]) -> Mapping[Any, Any]:
    """A mapping of these entries. What is no dict stays what it is, where its class says how it is copied: entries of
    transformers' BatchEncoding are attributes, too."""
    if isinstance(like, dict) or not isinstance(like, MutableMapping) or not hasattr(type(like), "__copy__"):
        return entries
    new = copy(like)
    new.update(entries)
    return new


def tensors_in(batch: Batch) -> Iterator[torch.Tensor]:
    """Every tensor of a batch that map_tensors changes, depth first."""
    if isinstance(batch, torch.Tensor):
        yield batch
    elif isinstance(batch, PackedSequence):
        yield from tensors_in([batch.data, batch.sorted_indices, batch.unsorted_indices])
    else:
        for value in parts_of(batch):
            yield from tensors_in(value)


def has_any(batch: Batch, ids: Collection[int]) -> bool:
    """Whether one of these tensors is in it."""
    return not _ids_in(batch).isdisjoint(ids)


def _ids_in(batch: Batch) -> set[int]:
    return {id(tensor) for tensor in tensors_in(batch)}


def batch_bytes(batch: Batch) -> int:
    """Bytes that putting the batch on a device moves, each tensor once."""
    distinct = {id(tensor): tensor for tensor in tensors_in(batch)}
    return sum(tensor.numel() * tensor.element_size() for tensor in distinct.values())
