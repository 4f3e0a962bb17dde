"""Watches one step: every operation that torch dispatches, and how many bytes are alive."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from probes.microtrain.operation_costs import flops_of, tensors_in, traffic_of
from probes.microtrain.operation_kinds import kind_of
from probes.trace import Kind, Phase

_SILENT = ("prim", "profiler")  # questions about tensors and marks for the profiler: nobody waits for them


class Record(NamedTuple):
    """One operation as it ran."""

    phase: Phase
    kind: Kind
    name: str
    dtype: str
    shapes: tuple[tuple[int, ...], ...]
    flops: int
    read_bytes: int
    written_bytes: int


class LiveBytes:
    """Bytes of storages alive now, and the most at any time."""

    def __init__(self) -> None:
        self.now = 0
        self.peak = 0
        self._known: set[int] = set()

    def add(self, tensors: Iterable[torch.Tensor]) -> None:
        """Count storages not seen before; each is taken off when it dies."""
        for tensor in tensors:
            storage = tensor.untyped_storage()
            if storage._cdata not in self._known:
                size = storage.nbytes()
                self._known.add(storage._cdata)
                self.now += size
                weakref.finalize(storage, self._drop, storage._cdata, size)
        self.peak = max(self.peak, self.now)

    def _drop(self, identity: int, size: int) -> None:
        self._known.discard(identity)
        self.now -= size


class Recorder(TorchDispatchMode):
    """Enter it inside a fake mode (or none). `phase` is set by whoever runs the step.

    Composite operations are taken apart as autograd would (under inference_mode torch hands them over whole).
    """

    def __init__(self) -> None:
        super().__init__()
        self.phase: Phase = "forward"
        self.records: list[Record] = []
        self.live = LiveBytes()

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func.namespace in _SILENT:
            return func(*args, **kwargs)
        if func._can_decompose():
            with self:
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        result = _scalar(args[0]) if func is torch.ops.aten._local_scalar_dense.default else None
        result = func(*args, **kwargs) if result is None else result
        self._record(func, args, kwargs, result)
        return result

    def _record(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        inputs = [*tensors_in(args), *(t for value in kwargs.values() for t in tensors_in(value))]
        outputs = list(tensors_in(result))
        self.live.add(outputs)
        typed = next((t for t in (*outputs, *inputs) if t.dtype.is_floating_point), None)
        dtype = str((typed if typed is not None else (*outputs, *inputs, _NOTHING)[0]).dtype).removeprefix("torch.")
        self.records.append(
            Record(
                self.phase,
                kind_of(func),
                str(func._overloadpacket),
                dtype,
                tuple(tuple(t.shape) for t in inputs),
                flops_of(func, args, kwargs, result),
                *traffic_of(func, inputs, outputs),
            )
        )


_NOTHING = torch.empty(0)


def _scalar(tensor: torch.Tensor) -> bool | float | None:
    """What `.item()` says of a fake tensor, which has no value: a step count of 1 for an optimizer, "no" for a
    question (is a layer dropped? is a label out of range?). None: a real tensor, or a size that cannot be guessed."""
    if not hasattr(tensor, "fake_mode"):
        return None
    if tensor.dtype is torch.bool:
        return False
    return 1.0 if tensor.dtype.is_floating_point else None
