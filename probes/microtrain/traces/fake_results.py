"""What a process remembers of fake tensors: torch of operations every shape that any mode met, without bound, and
functions of models what they returned."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch._subclasses.fake_tensor import FakeTensorMode

from probes.microtrain.building.remembered_tensors import forget_tensors


@contextlib.contextmanager
def forgotten_afterwards() -> Iterator[None]:
    """Forget it afterwards: layers that are alike meet again within one model, of another hardly any. A megabyte of a
    small config, and no other's trace takes longer."""
    try:
        yield
    finally:
        FakeTensorMode.cache_clear()
        forget_tensors()
