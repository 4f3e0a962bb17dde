"""Watches one step: every operation that torch dispatches, and how many bytes are alive."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import nullcontext
from functools import cache
from typing import Any, NamedTuple

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from probes.allocations import Log
from probes.context import SPARSE, variant_of
from probes.microtrain.failures import Untraceable
from probes.microtrain.kernel_memory.kernel_calls import Call, call_of, is_whole_layer
from probes.microtrain.traces.asking import is_guessed
from probes.microtrain.traces.chosen_kernels import chosen_kernel
from probes.microtrain.traces.decomposing import is_under_autocast, taken_apart, under_autocast
from probes.microtrain.traces.issuing import IssueCounter
from probes.microtrain.traces.operation_costs import flops_of, grain_of, tensors_in, traffic_of
from probes.microtrain.traces.operation_kinds import kind_of
from probes.microtrain.traces.repeats import Key, Made, describe, key_of, make
from probes.microtrain.traces.stand_ins import StandIns
from probes.microtrain.traces.unwatched import as_unwatched, unheld
from probes.trace import Kind, Phase

DEVICE = torch.ops.prim.device.default  # the engine asks for every gradient's
MOST_AFTER_A_GUESS = 100_000  # operations of a step: a loop as long as a guessed number never ends
SILENT = ("prim", "profiler")  # questions about tensors and marks for the profiler: nobody waits for them
CASTS = "casts"  # among what tells recorded operations apart: a whole layer that casts what it calls inside


class Record(NamedTuple):
    """One operation as it ran. variant: what its name leaves open (probes.context). grain: see probes.trace."""

    phase: Phase
    kind: Kind
    name: str
    dtype: str
    shapes: tuple[tuple[int, ...], ...]
    flops: int
    read_bytes: int
    written_bytes: int
    variant: str = ""
    grain: float = 0.0


class LiveBytes:
    """Bytes of storages alive now."""

    def __init__(self) -> None:
        self.now = 0
        self.log = Log([], 0, [])
        self.logs = True  # off while an optimizer steps: on a device it takes other ways
        self.inputs = 0  # how many of the log's allocations after the resident ones are the batch
        self.calls: dict[int, list[int]] = {}  # by place in the log's order, operations that began there
        self._known: dict[int, weakref.finalize[..., torch.UntypedStorage]] = {}
        self._before = 0  # how many allocations came before the step, its batch among them

    def add(self, tensors: Iterable[torch.Tensor]) -> None:
        """Count storages not seen before; each is taken off when it dies."""
        for tensor in tensors:
            self.hold(tensor.untyped_storage())

    def hold(self, storage: torch.UntypedStorage) -> None:
        if storage._cdata not in self._known:
            size = storage.nbytes()
            self.now += size
            finalizer = weakref.finalize(storage, self._drop, storage._cdata, size, self._allocated(size))
            self._known[storage._cdata] = finalizer

    def knows(self, storage: torch.UntypedStorage) -> bool:
        return storage._cdata in self._known

    def left(self) -> list[torch.UntypedStorage]:
        """What the step has made and something still holds, in the order in which it was made."""
        found = (finalizer.peek() for finalizer in self._known.values())
        return [storage for storage, _, (*_, number), _ in filter(None, found) if number > self._before]

    def _allocated(self, size: int) -> int:
        """The allocation's number from 1 on; 0: not logged."""
        if not self.logs or not size:
            return 0
        self.log.sizes.append(size)
        self.log.order.append(0)
        return len(self.log.sizes)

    def _drop(self, identity: int, size: int, number: int) -> None:
        self._known.pop(identity, None)
        self.now -= size
        if number and self.logs:
            self.log.order.append(number)

    def resides(self) -> None:
        """What was allocated until now lives from step to step."""
        self.log = Log(self.log.sizes, len(self.log.sizes), [])

    def begins(self) -> None:
        """What was allocated since is the step's batch."""
        self.inputs, self._before = len(self.log.order), len(self.log.sizes)

    def runs(self, number: int) -> None:
        """This operation may take more inside, before it makes its results, or after."""
        if self.logs:
            self.calls.setdefault(len(self.log.order), []).append(number)


def check_strided(what: str, tensors: Iterable[torch.Tensor], *, by_name: bool = False) -> None:
    """what: has them, as in "This model's weights have". by_name: the operation's says so, where torch's fake tensors
    have lost a buffer's layout. Raises Untraceable."""
    if by_name or any(tensor.layout is not torch.strided or tensor.is_nested for tensor in tensors):
        raise Untraceable(
            f"{what} sparse or nested tensors. How much these hold depends on numbers, which a trace does not follow. "
            "Measure it instead (effort quick)."
        )


class Known(NamedTuple):
    """What is the same whenever an operation runs with arguments of the same shapes."""

    record: Record  # as it first ran; its phase may be another
    call: Call | None
    made: tuple[Made, ...] | None
    single: bool  # the result is one tensor
    listed: bool  # or a list of them


class Recorder(TorchDispatchMode):
    """Enter it inside a fake mode (or none). `phase` is set by whoever runs the step.

    Composite operations are taken apart as autograd would (under inference_mode torch hands them over whole), and cast
    where whoever asks for them is under autocast. known: what recorders of the same model's steps in the same mode have
    in common. issuing: is told of every operation. sparse: identities of tensors that are mostly zeros
    (probes.microtrain.traces.sparse_states). kept: of storages, whose use is noted. device: the kind that the step runs
    on.
    """

    supports_higher_order_operators = True  # they come here, to be refused by name

    def __init__(
        self,
        known: dict[Key, Known] | None = None,
        *,
        issuing: IssueCounter | None = None,
        sparse: Collection[int] = (),
        kept: Collection[int] = (),
        device: str = "cpu",
    ) -> None:
        super().__init__()
        unheld()  # for as_unwatched
        self.issuing = issuing
        self.sparse = sparse
        self._kept = kept
        self.used: set[int] = set()  # of what is kept: what an operation took
        self._device = device
        self.phase: Phase = "forward"
        self.records: list[Record] = []
        self.live = LiveBytes()
        self._stand_ins = StandIns()
        self._known = {} if known is None else known
        # By memory, of tensors with numbers that operations took and nobody had told of or made.
        self._strangers: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self.live_bytes: list[int] = []  # with each record: alive as it ended
        self.calls: list[Call | None] = []  # with each record whose kernel may take memory inside

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is DEVICE and isinstance(args[0], FakeTensor):  # most questions by far, and it knows its own
            return args[0].fake_device
        if self.issuing is None or not self.issuing.pause():
            return self._dispatch(func, args, kwargs or {})
        try:
            return self._dispatch(func, args, kwargs or {})
        finally:
            self.issuing.resume()

    def _dispatch(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if isinstance(func, HigherOrderOperator):
            raise Untraceable(
                f"{func.name()} in this model is a higher-order operator: it runs functions that it is given, which a "
                "trace does not follow. Measure it instead (effort quick)."
            )
        if func.namespace in SILENT:
            return func(*args, **kwargs)
        func = as_unwatched(func, args, kwargs)
        if is_composite(func, self._device):
            with self:
                parts = taken_apart(func, args, kwargs, self._device)
            if parts is not NotImplemented:
                return parts
        return self._run(func, args, kwargs)

    @property
    def evenly_routed(self) -> bool:
        """Whether experts were taken to be chosen equally often."""
        return self._stand_ins.assumed_even

    @property
    def layers_dropped(self) -> float:
        """The share that chance would have left out, on average, of what a library asked it for: layers, of LayerDrop.
        All of them were run. 0 where it asked for none."""
        denied = self._stand_ins.denied
        return sum(denied) / len(denied) if denied else 0.0

    def learn_inputs(self, inputs: Iterable[torch.Tensor]) -> None:
        """What is known of them (probes.microtrain.traces.known_numbers) is known of their parts, too."""
        self._stand_ins.known.learn_marked(inputs)

    def _run(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if len(self.records) >= MOST_AFTER_A_GUESS and is_guessed():
            raise DataDependentOutputException(torch.ops.aten._local_scalar_dense.default)
        if self._kept:
            self.used.update(map(_memory, _strided((*args, *kwargs.values()))))
        if self.issuing is not None:
            self.issuing.begins()
        key = None if self._stand_ins.decides(func, args, kwargs) else key_of(func, args, kwargs)
        casts = is_whole_layer(func) and is_under_autocast(self._device)
        key = (key, CASTS) if key is not None and casts else key
        key = (key, SPARSE) if key is not None and self._is_sparse(args) else key
        known = None if key is None else self._known.get(key)
        if known is not None and known.made is not None:
            result = make(known.made, args, one=known.single, listed=known.listed)
            self._note(known, tensors_in(result))
            return result
        with under_autocast(self._device) if casts else nullcontext():
            result = self._stand_ins.run(func, args, kwargs)
        if casts:
            result = _as_cast(result)
        known = self._learn(func, args, kwargs, result, casts=casts)
        if key is not None:
            self._known[key] = known
        self._note(known, tensors_in(result))
        return result

    def _learn(
        self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, *, casts: bool
    ) -> Known:
        """casts: whether what it calls inside is cast."""
        inputs = [*tensors_in(args), *(t for value in kwargs.values() for t in tensors_in(value))]
        outputs = list(tensors_in(result))
        name = str(func._overloadpacket)
        check_strided(f"{name} in this model takes or gives", (*inputs, *outputs), by_name="sparse" in name)
        self._meet(t.untyped_storage() for t in inputs if not isinstance(t, FakeTensor))
        typed = next((t for t in (*outputs, *inputs) if t.dtype.is_floating_point), None)
        dtype = str((typed if typed is not None else (*outputs, *inputs, _NOTHING)[0]).dtype).removeprefix("torch.")
        cost = (flops_of(func, args, kwargs, result), *traffic_of(func, inputs, outputs))
        shapes = tuple(tuple(t.shape) for t in inputs)
        variant = chosen_kernel(name, args, kwargs) or _variant(name, shapes, inputs, args)
        variant = SPARSE if self._is_sparse(args) else variant
        record = Record(self.phase, kind_of(func), name, dtype, shapes, *cost, variant, grain_of(func, args))
        call = call_of(func, kind_of(func), dtype, args, kwargs, cost, autocast=casts)
        return Known(
            record, call, describe(args, result), not isinstance(result, tuple | list), isinstance(result, list)
        )

    def _meet(self, storages: Iterable[torch.UntypedStorage]) -> None:
        for storage in storages:
            if not self.live.knows(storage):
                self._strangers.setdefault(storage._cdata, weakref.ref(storage))

    def strangers(self) -> list[torch.UntypedStorage]:
        """Those that are alive: after a step, what lives from step to step beside what was told to `live`."""
        return [storage for met in self._strangers.values() if (storage := met()) is not None]

    def _is_sparse(self, args: tuple[Any, ...]) -> bool:
        return bool(self.sparse) and bool(args) and id(args[0]) in self.sparse

    def _note(self, known: Known, outputs: Iterable[torch.Tensor]) -> None:
        if known.call is not None:
            self.live.runs(len(self.records))
        self.live.add(outputs)
        self.live_bytes.append(self.live.now)
        record = known.record
        self.records.append(record if record.phase == self.phase else record._replace(phase=self.phase))
        self.calls.append(known.call)


_NOTHING = torch.empty(0)


def _strided(values: tuple[Any, ...]) -> Iterator[torch.Tensor]:
    return (tensor for tensor in tensors_in(values) if tensor.layout is torch.strided and not tensor.is_nested)


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


# Where a convolution's arguments say so: (input, weight, bias, stride, padding, dilation, transposed, …), and a
# backward's: (gradient, input, weight, bias sizes, stride, padding, dilation, transposed, …).
_DILATION = {"aten.convolution": 5, "aten.convolution_backward": 6}


def _variant(name: str, shapes: Sequence[Sequence[int]], inputs: Sequence[torch.Tensor], args: Sequence[Any]) -> str:
    place = _DILATION.get(name)
    strided = place is not None and any(each > 1 for each in args[place - 2])
    dilated = place is not None and any(each > 1 for each in args[place])
    transposed = place is not None and bool(args[place + 1])
    last = _has_channels_last(inputs)
    return variant_of(name, shapes, channels_last=last, transposed=transposed, dilated=dilated, strided=strided)


def _has_channels_last(inputs: Sequence[torch.Tensor]) -> bool:
    """Of images; torch leaves open what one of a single channel or place is."""
    first = inputs[0] if inputs else _NOTHING
    return first.dim() == 4 and not first.is_contiguous() and first.stride(1) == 1


def _as_cast(result: Any) -> Any:
    """Fake tensors do not know that what a layer computes inside is cast: its results come out as narrow."""
    narrow = [t.to(torch.bfloat16) if t.dtype is torch.float32 else t for t in tensors_in(result)]
    return tuple(narrow) if isinstance(result, tuple) else narrow[0]


@cache
def is_composite(func: OpOverload, device: str = "cpu") -> bool:
    """Whether a real step runs its parts: not where a kernel computes the whole (silu's backward has both)."""
    key = "CPU" if device == "cpu" else "CUDA"
    return bool(func._can_decompose()) and not torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), key)
