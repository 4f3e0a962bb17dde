"""Takes composite operations apart as whoever asked for them would, though a dispatch mode has them.

A mode comes below what torch lays around kernels, autocast and the tracking of views among it, and is called with all
of that shut off. Parts of an operation that ran so would be others than a real step's: a view of a trained weight asks
for no gradient there, and matmul folds by that (aten/src/ATen/native/LinearAlgebra.cpp, should_fold).
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload
from torch.overrides import enable_reentrant_dispatch

_VIEWS = torch._C.DispatchKey.ADInplaceOrView


def taken_apart(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], device: str = "cpu") -> Any:
    """What a composite operation gives, its parts asked for one by one; NotImplemented where it has none. To be called
    within the mode that is to see them."""
    within, _within_views.any = _within_views.any, _within_views.any or _tracks_views(func)
    try:
        with _as_asked(device):
            return _decompose(func, args, kwargs)
    finally:
        _within_views.any = within


class _WithinViews(threading.local):
    """Whether parts are those of an operation whose views torch itself tracks, as a whole."""

    any = False


_within_views = _WithinViews()


@cache
def _tracks_views(func: OpOverload) -> bool:
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), _VIEWS))


def casting_as_asked(device: str = "cpu") -> AbstractContextManager[Any]:
    """Within a dispatch mode: cast where whoever asked for an operation is under autocast."""
    return under_autocast(device) if is_under_autocast(device) else nullcontext()


def is_under_autocast(device: str = "cpu") -> bool:
    """Whether whoever asked for the operation that a dispatch mode has is. The mode comes below autocast, where torch
    tells that of nobody; what was set when it was asked is kept for that long."""
    with enable_reentrant_dispatch():
        return torch.is_autocast_enabled(device)


def under_autocast(device: str) -> AbstractContextManager[Any]:
    return _no_longer_shut_off([_autocast_key(device)])


def _as_asked(device: str) -> AbstractContextManager[Any]:
    """Where a step computes gradients autograd takes operations apart before a mode has them; what a mode has then is
    asked for by torch's own kernels, which have tracked what there is."""
    keys = [_autocast_key(device)] if is_under_autocast(device) else []
    tracked = torch.is_inference_mode_enabled() and not _within_views.any
    return _no_longer_shut_off([*keys, _VIEWS] if tracked else keys)


def _autocast_key(device: str) -> torch._C.DispatchKey:
    return torch._C.DispatchKey.AutocastCPU if device == "cpu" else torch._C.DispatchKey.AutocastCUDA


def _no_longer_shut_off(keys: list[torch._C.DispatchKey]) -> AbstractContextManager[Any]:
    included, excluded = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
    for key in keys:
        excluded = excluded.remove(key)
    return torch._C._ForceDispatchKeyGuard(included, excluded)


def _decompose(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """By the kernel that a real step runs, where there is one: torch's Python stand-ins (of an LSTM) keep other things
    alive."""
    composite = torch._C.DispatchKey.CompositeImplicitAutograd
    if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), composite):
        return func._op_dk(composite, *args, **kwargs)
    return func.decompose(*args, **kwargs)
