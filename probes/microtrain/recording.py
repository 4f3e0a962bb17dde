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
from probes.microtrain.scratch import Call, call_of
from probes.microtrain.stand_ins import StandIns
from probes.trace import Kind, Phase

SILENT = ("prim", "profiler")  # questions about tensors and marks for the profiler: nobody waits for them


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
    """Bytes of storages alive now."""

    def __init__(self) -> None:
        self.now = 0
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
        self._stand_ins = StandIns()
        self.live_bytes: list[int] = []  # with each record: alive as it ended
        self.calls: list[Call | None] = []  # with each record whose kernel may take memory inside

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func.namespace in SILENT:
            return func(*args, **kwargs)
        if func._can_decompose():
            with self:
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        result = self._stand_ins.run(func, args, kwargs)
        self._record(func, args, kwargs, result)
        return result

    def _record(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        inputs = [*tensors_in(args), *(t for value in kwargs.values() for t in tensors_in(value))]
        outputs = list(tensors_in(result))
        self.live.add(outputs)
        self.live_bytes.append(self.live.now)
        typed = next((t for t in (*outputs, *inputs) if t.dtype.is_floating_point), None)
        dtype = str((typed if typed is not None else (*outputs, *inputs, _NOTHING)[0]).dtype).removeprefix("torch.")
        cost = (flops_of(func, args, kwargs, result), *traffic_of(func, inputs, outputs))
        shapes = tuple(tuple(t.shape) for t in inputs)
        self.records.append(Record(self.phase, kind_of(func), str(func._overloadpacket), dtype, shapes, *cost))
        self.calls.append(call_of(func, kind_of(func), dtype, args, kwargs, cost))


_NOTHING = torch.empty(0)
