"""Batches that a step alters: noticed while its first steps run, and handed out as copies from then on.

In a training loop each step meets a batch that nothing has touched; here the same ones come round and round. What
torch does not count (numpy's writes into a tensor's memory, those through `tensor.data`) is not noticed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from probes.microtrain.feeding import MAPPINGS, Batch, Feed, fields_of, has_fields, map_tensors, own_copy, tensors_in

# Of tensors among all of a batch (tensors_in); none: only what holds them is altered.
Places = frozenset[int]


@dataclass(slots=True)
class Alterations:
    """What steps did to the batches that they were given. places: None where they left all as they were. tensors: of
    the batches that are no longer as they were made."""

    places: Places | None
    tensors: list[torch.Tensor]


class NoticingFeed:
    """Stands in the place of a feed while steps run that are not timed for a sample, and looks at what it hands out."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self.held_bytes = feed.held_bytes
        self._found = Alterations(None, [])
        self._given: _Given | None = None

    def next(self) -> Batch:
        self._look_again()
        batch = self.feed.next()
        self._given = _Given(batch)
        return batch

    def alterations(self) -> Alterations:
        """As far as steps have ended."""
        self._look_again()
        return self._found

    def _look_again(self) -> None:
        given, self._given = self._given, None  # what was handed out is not to outlast its step
        if given is not None and given.is_altered():
            places = frozenset(given.altered_places())
            self._found.places = places | (self._found.places or frozenset())
            self._found.tensors += given.tensors


class CopyingFeed:
    """Each step has copies of what steps alter, as it was made, and what holds it anew."""

    def __init__(self, feed: Feed, places: Places) -> None:
        self.held_bytes = feed.held_bytes
        self._feed = feed
        self._places = places

    def next(self) -> Batch:
        return copied_at(self._feed.next(), self._places)


def copied_at(batch: Batch, places: Places) -> Batch:
    """The same batch with copies of the tensors at these places, in containers of its own."""
    numbers = count()
    return map_tensors(batch, lambda tensor: own_copy(tensor) if next(numbers) in places else tensor)


def bytes_beside(batch: Batch, places: Places | None) -> int:
    """Of the tensors that a step uses as they are, each once; None: of all."""
    tensors = enumerate(tensors_in(batch))
    kept = {id(tensor): tensor for place, tensor in tensors if place not in (places or ())}
    return sum(tensor.numel() * tensor.element_size() for tensor in kept.values())


class _Given:
    """A batch as it was when a step was given it."""

    def __init__(self, batch: Batch) -> None:
        self.tensors = list(tensors_in(batch))
        self._batch = batch
        self._layout = _layout_of(batch)
        self._states = [_state_of(tensor) for tensor in self.tensors]

    def is_altered(self) -> bool:
        return next(self.altered_places(), None) is not None or _layout_of(self._batch) != self._layout

    def altered_places(self) -> Iterator[int]:
        for place, (tensor, state) in enumerate(zip(self.tensors, self._states, strict=True)):
            if _state_of(tensor) != state:
                yield place


def _state_of(tensor: torch.Tensor) -> tuple[object, ...]:
    """What differs once the tensor was written to, or turned in place."""
    shape = None if tensor.is_nested else tensor.shape
    return (None if tensor.is_inference() else tensor._version), shape


def _layout_of(batch: Batch) -> Any:
    """Which values lie where."""
    if isinstance(batch, tuple | list) and not isinstance(batch, PackedSequence):
        return [_layout_of(value) for value in batch]
    entries = batch if isinstance(batch, MAPPINGS) else fields_of(batch) if has_fields(batch) else None
    return id(batch) if entries is None else {name: _layout_of(value) for name, value in entries.items()}
