"""What torch's allocator keeps of a device for the next that asks."""

from __future__ import annotations

from contextlib import suppress

import torch


def empty_device_cache() -> None:
    """Give it back. After a device's assertion every call of CUDA's raises the same error again; whoever met it first
    tells of it, and letting go of memory must not end what can still be told."""
    if torch.cuda.is_initialized():
        with suppress(RuntimeError):
            torch.cuda.empty_cache()
