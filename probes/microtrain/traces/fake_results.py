"""What torch remembers of operations on fake tensors: every shape that any mode of this process met, without bound."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch._subclasses.fake_tensor import FakeTensorMode


@contextlib.contextmanager
def forgotten_afterwards() -> Iterator[None]:
    """Forget it afterwards: layers that are alike meet again within one model, of another hardly any. A megabyte of a
    small config, and no other's trace takes longer."""
    try:
        yield
    finally:
        FakeTensorMode.cache_clear()
