"""What functions of models remember of earlier calls (functools.lru_cache), where that is tensors.

functools keeps it for the whole process. Tensors without numbers, made while a model is built or stepped for its trace,
cannot be mixed with real ones, nor with those of another FakeTensorMode.
"""

from __future__ import annotations

import gc
import sys
from collections import deque
from collections.abc import Iterator
from functools import _lru_cache_wrapper
from types import FunctionType, ModuleType
from typing import Any
from weakref import WeakSet

import torch
from torch import nn

# Packages in which no model is written: what torch and this process are made of, and what torch imports later. Of
# transformers its models alone.
_OTHERS = {name.partition(".")[0] for name in sys.modules} | {"sympy", "mpmath", "transformers"}
_MODELS = "transformers.models."
_LOOKED_AT = 1000  # objects that a function remembers: where tensors are among them, one is among the first

_searched: WeakSet[ModuleType] = WeakSet()
_caches: WeakSet[_lru_cache_wrapper[Any]] = WeakSet()


def forget_tensors() -> None:
    """Empty the caches of models' functions that hold tensors or modules, real or not: the next call computes them
    anew, as a first one does. What else functions remember (a vocabulary that was read from a file) stays.

    Functions, methods and what decorators close over are found, of modules imported by now; a dict of a user's own is
    not."""
    for name, module in list(sys.modules.items()):
        if _has_models(name) and isinstance(module, ModuleType) and module not in _searched:
            _searched.add(module)
            _caches.update(_caches_in(module))
    for cache in list(_caches):
        if cache.cache_info().currsize and _holds_tensors(cache):
            cache.cache_clear()


def _has_models(name: str) -> bool:
    return name.startswith(_MODELS) or name.partition(".")[0] not in _OTHERS


def _caches_in(module: ModuleType) -> Iterator[_lru_cache_wrapper[Any]]:
    """By types alone: what else a module holds may do anything when it is looked at."""
    own = list(vars(module).values())
    name = getattr(module, "__name__", None)
    kinds = [value for value in own if issubclass(type(value), type) and getattr(value, "__module__", None) == name]
    methods = [value for kind in kinds for value in vars(kind).values()]
    for value in (*own, *methods):
        function = value.__func__ if type(value) in (staticmethod, classmethod) else value
        cells = (function.__closure__ or ()) if type(function) is FunctionType else ()
        for found in (function, *gc.get_referents(*cells)):
            if type(found) is _lru_cache_wrapper:
                yield found


def _holds_tensors(cache: _lru_cache_wrapper[Any]) -> bool:
    """Among what it was called with and returned, and what those hold in turn."""
    waiting: deque[Any] = deque([cache])
    for _ in range(_LOOKED_AT):
        if not waiting:
            return False
        value = waiting.popleft()
        if issubclass(type(value), (torch.Tensor, nn.Module)):
            return True
        if not issubclass(type(value), (type, ModuleType, FunctionType)):
            waiting.extend(filter(gc.is_tracked, gc.get_referents(value)))
    return False
