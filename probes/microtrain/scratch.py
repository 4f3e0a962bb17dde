"""What kernels take inside while they run: asked by running them once for real, alone, watched by torch's profiler.

A convolution on a CPU copies its image and weights into blocks of channels, a recurrent layer keeps its gates; no
tensor of the step shows it. How much is the library's choice, by processor, shape and type.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple, TypeAlias

import torch
from torch._C._profiler import _EventType
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.profiler import ProfilerActivity, profile
from torch.utils._mode_utils import no_dispatch

from probes.allocations import RESULT
from probes.microtrain.merging import affine
from probes.microtrain.operation_costs import tensors_in
from probes.trace import Kind

aten = torch.ops.aten

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's profiler reports its every start to the terminal

# Beyond these a call is tried at smaller batches: a tenth of a second on one core, and no burden on memory.
MAX_FLOPS = 4e9
MAX_BYTES = 256 * 2**20
# One trial, and all of a trace in one precision. What is not known yet is tried once, whatever it takes.
MAX_SECONDS = 0.1
MAX_TRACE_SECONDS = 0.3
# Up to here a trial takes next to no time, whatever one at another size took for the profiler and for choosing kernels.
EASY_FLOPS, EASY_BYTES = 2e8, 2**25
_KINDS = {"convolution", "recurrent", "attention"}
_WHOLE_LAYERS = {"aten._transformer_encoder_layer_fwd", "aten._native_multi_head_attention"}
_NAMES = {"aten._safe_softmax", *_WHOLE_LAYERS}
# Beside these, what copies an argument before it begins: one of another dtype than its others, or one that does not lie
# in order. Rolling over several dimensions goes one after the other; a batch norm's backward makes its result twice.
_COPYING_KINDS = {"normalization"}
_COPYING_NAMES = {"aten.roll"}
_ORDERING_KINDS = {"gather", "reduction"}
COPYING_SIZES = (2, 4)  # copies are in proportion
# No kernel was seen to take more inside than this: a multiple of what it reads and writes, which counts where blocks
# are filled up (oneDNN's products of small matrices took six times as much), and some rooms of fixed size.
BOUND_FACTOR = 3
BOUND_BYTES = 2**15
CHANNEL_BLOCK = 16  # oneDNN's blocked formats (oneDNN docs, "Understanding Memory Formats": nChw16c)


class Shape(NamedTuple):
    """A tensor argument without its numbers."""

    sizes: tuple[int, ...]
    order: tuple[int, ...]  # dimensions from the widest stride to the closest
    dtype: torch.dtype
    weight: bool = False  # autocast keeps its copies of these


class Call(NamedTuple):
    """An operation with its arguments; hashable. bound: bytes, which none was seen to exceed."""

    operation: OpOverload
    arguments: tuple[Any, ...]
    flops: int
    read_bytes: int
    bound: int
    copies: bool  # what it takes inside are arguments in another dtype or order, and not a library's choice
    inference: bool  # under torch.inference_mode
    autocast: bool  # what it calls inside is cast


class Taken(NamedTuple):
    """Bytes. inside: at the most while it ran, beyond what was left as it ended; kept: of that, beyond the results.
    sizes, order: as KernelAllocations has them (probes.allocations). seconds: of CPU time that the run took, whenever
    that was."""

    inside: int
    kept: int
    sizes: tuple[int, ...]
    order: tuple[int, ...]
    seconds: float


class Budget:
    """What all trials of one trace may cost together, in seconds of CPU time."""

    def __init__(self, seconds: float = MAX_TRACE_SECONDS) -> None:
        self._left = seconds

    def allows(self, seconds: float) -> bool:
        return seconds <= min(self._left, MAX_SECONDS)

    def spend(self, seconds: float) -> None:
        self._left -= seconds


def call_of(
    operation: OpOverload,
    kind: Kind,
    dtype: str,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    cost: Sequence[int],
    *,
    autocast: bool = False,
) -> Call | None:
    """cost: flops, bytes read, bytes written. None: this operation takes nothing inside that is worth asking for."""
    if kwargs:
        return None
    narrow = kind in ("matmul", "reduction") and dtype == "bfloat16"  # on copies in oneDNN's order, or in fp32
    moved = cost[1] + cost[2]
    if kind in _KINDS or narrow or str(operation._overloadpacket) in _NAMES:
        copies, bound = False, BOUND_FACTOR * moved + BOUND_BYTES + _blocked_bytes(operation, args)
    elif _copies(operation, kind, args):
        copies, bound = True, moved + BOUND_BYTES
    else:
        return None
    inference, casts = torch.is_inference_mode_enabled(), autocast and is_whole_layer(operation)
    return Call(operation, _freeze(args), cost[0], cost[1], bound, copies, inference, casts)


def _copies(operation: OpOverload, kind: Kind, args: Sequence[Any]) -> bool:
    """Whether it may copy an argument before it begins."""
    if kind in _COPYING_KINDS or str(operation._overloadpacket) in _COPYING_NAMES:
        return True
    tensors = [tensor for tensor in tensors_in(args) if tensor.numel() > 1]
    if kind == "elementwise":
        return len({tensor.dtype for tensor in tensors}) > 1
    return kind in _ORDERING_KINDS and not all(tensor.is_contiguous() for tensor in tensors)


def _blocked_bytes(operation: OpOverload, args: Sequence[Any]) -> int:
    """Weights of a convolution in fp32 with the channels of each group filled up to blocks, as oneDNN's kernels copy
    them: those of a depthwise one become 256 times as large."""
    places = {aten.convolution.default: (1, 8), aten.convolution_backward.default: (2, 9)}.get(operation)
    if places is None:
        return 0
    weight, groups = args[places[0]], args[places[1]]
    channels = (weight.shape[0] // groups, weight.shape[1])
    filled = [-(-size // CHANNEL_BLOCK) * CHANNEL_BLOCK / max(size, 1) for size in channels]
    return int(4 * weight.numel() * filled[0] * filled[1])


def is_whole_layer(operation: OpOverload) -> bool:
    """One that calls others inside, which are cast under autocast."""
    return str(operation._overloadpacket) in _WHOLE_LAYERS


def _freeze(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        strides = value.stride()
        order = sorted(range(value.dim()), key=lambda axis: (-strides[axis], axis))
        return Shape(tuple(value.shape), tuple(order), value.dtype, isinstance(value, torch.nn.Parameter))
    return tuple(_freeze(item) for item in value) if isinstance(value, list | tuple) else value


class Inside:
    """Bytes that a call takes inside, beyond its results, by the batch size. one, other: the call at two of them."""

    def __init__(self, batch_sizes: tuple[int, int], one: Call, other: Call) -> None:
        self._batch_sizes = batch_sizes
        self._one = one
        self._other = other
        self._bound = affine(batch_sizes, (one.bound, other.bound))
        self._flops = affine(batch_sizes, (one.flops, other.flops))
        self._seen: dict[int, int] = {}
        self._seconds_a_sample = 0.0  # as it last ran
        self._fails = False

    def at(self, batch_size: int, budget: Budget) -> float:
        """Run for it where that is cheap, else in line with the largest sizes at which it is."""
        if batch_size not in self._seen:
            sizes = COPYING_SIZES if self._one.copies else (*self._cheap_sizes(batch_size), batch_size)
            for size in sizes:
                self._try(size, budget)
        return float(self._seen[batch_size]) if batch_size in self._seen else self._in_line(batch_size)

    def _cheap_sizes(self, below: int) -> tuple[int, ...]:
        """A small one, which tells what others cost; and two that are as large as may be, where that is needed."""
        sizes = [2**power for power in range(below.bit_length()) if 2**power < below and self._is_small(2**power)]
        return tuple(sizes[:2]) if not self._seen else () if self._is_small(below) else tuple(sizes[-2:])

    def _is_small(self, size: int) -> bool:
        return self._flops.at(size) <= MAX_FLOPS and self._bound.at(size) <= MAX_BYTES

    def _try(self, size: int, budget: Budget) -> None:
        if size in self._seen or self._fails or not self._is_small(size):
            return
        easy = self._flops.at(size) <= EASY_FLOPS and self._bound.at(size) <= EASY_BYTES
        if len(self._seen) >= 2 and not budget.allows(0.0 if easy else self._seconds_a_sample * size):
            return
        call = call_at(self._batch_sizes, self._one, self._other, size)
        begun = time.thread_time()
        try:
            taken = measure_call(call)
            self._seen[size], self._seconds_a_sample = taken.inside, taken.seconds / size
        except Exception:  # noqa: BLE001 - zeros are no fit input for every operation
            self._fails = True
        budget.spend(time.thread_time() - begun)

    def kept(self) -> int:
        """Bytes that stay until the step ends: autocast's copies of weights, whatever the batch."""
        if not self._one.autocast or not self._is_small(1):
            return 0
        try:
            return measure_call(call_at(self._batch_sizes, self._one, self._other, 1)).kept
        except Exception:  # noqa: BLE001 - as in _try
            return 0

    def _in_line(self, batch_size: int) -> float:
        """Without two points what is read counts as copied by a library, the nearest of all simple rules."""
        sizes = sorted(self._seen, key=lambda size: abs(size - batch_size))[:2]
        if len(sizes) < 2 and self._one.copies:
            return 0.0
        if len(sizes) < 2:
            known = self._seen.get(sizes[0], 0) if sizes else 0
            return max(affine(self._batch_sizes, (self._one.read_bytes, self._other.read_bytes)).at(batch_size), known)
        line = affine((sizes[0], sizes[1]), (self._seen[sizes[0]], self._seen[sizes[1]]))
        return max(line.at(batch_size), 0.0)


def call_at(batch_sizes: tuple[int, int], one: Call, other: Call, size: int) -> Call:
    """The call at another batch size than the two at which it was seen."""
    return one._replace(arguments=_arguments_at(batch_sizes, one.arguments, other.arguments, size))


def _arguments_at(batch_sizes: tuple[int, int], one: Any, other: Any, size: int) -> Any:
    """Arguments between those of two batch sizes, or beyond: whole numbers grow in proportion."""
    if isinstance(one, Shape):
        sizes = _arguments_at(batch_sizes, one.sizes, other.sizes, size)
        return Shape(sizes, one.order, one.dtype, one.weight)
    if isinstance(one, tuple):
        return tuple(_arguments_at(batch_sizes, a, b, size) for a, b in zip(one, other, strict=True))
    if one == other:
        return one
    return one + (other - one) * (size - batch_sizes[0]) // (batch_sizes[1] - batch_sizes[0])


@lru_cache(maxsize=1024)
def measure_call(call: Call) -> Taken:
    """Runs it, watched: what torch's allocator hands out."""
    begun = time.thread_time()
    with unset_fake_temporarily(), no_dispatch(), torch.inference_mode(mode=False), torch.enable_grad():
        real = list(_thaw(call.arguments))
        if call.operation is aten.mkldnn_rnn_layer_backward.default:
            real[-1] = _workspace(real)
        elif call.operation is aten.native_batch_norm_backward.default:
            real[5:7] = [None if each is None else each.float() for each in real[5:7]]
        with _surroundings(call), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watched:
            result = call.operation(*real)
    assert watched.profiler is not None
    assert watched.profiler.kineto_results is not None
    changes = _own(_allocations_in(watched.profiler.kineto_results.experimental_event_tree()))
    alive = list(accumulate((change for _, change in changes), initial=0))
    inside, kept = max(alive) - alive[-1], max(alive[-1] - _bytes(result), 0)
    return Taken(inside, kept, *_given_back(changes), time.thread_time() - begun)


# An allocation or a free: its address, and its bytes, negative of what was freed.
Change: TypeAlias = tuple[int, int]


def _allocations_in(events: Iterable[Any]) -> list[Change]:
    """As they happened. events: of torch's profiler, with what was called inside each."""
    found: list[tuple[int, Change]] = []
    waiting = list(events)
    while waiting:
        event = waiting.pop()
        waiting += event.children
        if event.tag == _EventType.Allocation:
            fields = event.extra_fields
            found.append((event.start_time_ns, (fields.ptr, fields.alloc_size)))
    return [change for _, change in sorted(found, key=lambda each: each[0])]


def _own(changes: Sequence[Change]) -> list[Change]:
    """Without frees of what was there before: garbage of an earlier profile, collected while this one watched."""
    alive: set[int] = set()
    own = []
    for address, change in changes:
        if change > 0:
            alive.add(address)
        elif address in alive:
            alive.discard(address)
        else:
            continue
        own.append((address, change))
    return own


def _given_back(changes: Sequence[Change]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(sizes, order) of all allocations: of those that stay, RESULT alone."""
    made: dict[int, int] = {}  # address -> place of the allocation that is alive there
    freed: dict[int, int] = {}  # place of the free -> of the allocation
    for place, (address, change) in enumerate(changes):
        if change > 0:
            made[address] = place
        else:
            freed[place] = made.pop(address)
    number = {place: count for count, place in enumerate(sorted(freed.values()), start=1)}
    order = [
        0 if place in number else RESULT if place not in freed else number[freed[place]]
        for place in range(len(changes))
    ]
    return tuple(changes[place][1] for place in number), tuple(order)


@contextlib.contextmanager
def _surroundings(call: Call) -> Iterator[None]:
    """A recurrent layer keeps what its backward needs unless it is inference."""
    with torch.inference_mode(call.inference), torch.autocast("cpu", torch.bfloat16, enabled=call.autocast):
        yield


def _bytes(result: Any) -> int:
    results = result if isinstance(result, tuple | list) else (result,)
    storages = {t.untyped_storage()._cdata: t.untyped_storage().nbytes() for t in results if torch.is_tensor(t)}
    return sum(storages.values())


def _workspace(real: list[Any]) -> torch.Tensor:
    """What the forward of (input, 4 weights, state, cell, output, …) leaves for this backward."""
    reverse, mode, hidden, layers, biases, train, both, sizes, first = real[13:22]
    states = (*real[:7], reverse, sizes, mode, hidden, layers, biases, both, first, train)
    workspace: torch.Tensor = aten.mkldnn_rnn_layer.default(*states)[3]
    return workspace


def _thaw(value: Any) -> Any:
    if isinstance(value, Shape):
        sizes = [value.sizes[axis] for axis in value.order]
        back = sorted(range(len(sizes)), key=lambda place: value.order[place])
        zeros = torch.zeros(sizes, dtype=value.dtype).permute(back)
        return torch.nn.Parameter(zeros) if value.weight and value.dtype.is_floating_point else zeros
    return [_thaw(item) for item in value] if isinstance(value, tuple) else value
