"""What a user's script sets for itself of what is global in torch: threads, and where new tensors lie.

How many threads a plan says, and where a step's tensors lie its feed, for every model that a process runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch.utils import _device

from probes.microtrain.feeding import Batch, tensors_in

_placing: set[str] = set()  # Python modules that set a default device


@contextmanager
def settings_kept(module: str) -> Iterator[None]:
    """While Python of this module runs: what it sets is undone, and remembered of it (`as_placed`). Not by
    torch.get_default_device, which makes a tensor there to look at: that begins a card's context. What cannot be undone
    is not set: torch takes threads between operations once, and the function is called several times."""
    threads, device = torch.get_num_threads(), _device.CURRENT_DEVICE
    set_between, torch.set_num_interop_threads = torch.set_num_interop_threads, _set_nothing
    try:
        yield
    finally:
        torch.set_num_interop_threads = set_between
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        if device != _device.CURRENT_DEVICE:
            _placing.add(module)
            torch.set_default_device(None)


def _set_nothing(nthreads: int) -> None:
    """In the place of torch.set_num_interop_threads."""


def as_placed(module: str, call: Callable[[Any, Batch], Any]) -> Callable[[Any, Batch], Any]:
    """A forward or a loss of (module or output, batch). One of a script that sets a default device may make tensors and
    trust them to lie with the others: they do, on the device that the batch is on."""
    if module not in _placing:
        return call

    def placed(first: Any, batch: Batch) -> Any:
        tensor = next(tensors_in(batch), None)
        with nullcontext() if tensor is None else tensor.device:
            return call(first, batch)

    return placed
