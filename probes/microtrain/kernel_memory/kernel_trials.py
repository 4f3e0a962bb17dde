"""Runs one kernel for real, alone, on zeros or the like, watched by torch's profiler: what it asks for and gives back.
How much is the library's choice, by processor, shape and type."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import accumulate
from typing import Any, NamedTuple, TypeAlias

import torch
from torch._C._profiler import _EventType
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.profiler import ProfilerActivity, profile
from torch.utils._mode_utils import no_dispatch

from probes.allocations import RESULT
from probes.microtrain.kernel_memory.kernel_calls import Call, Shape

aten = torch.ops.aten

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's profiler reports its every start to the terminal

# For kernels of which nothing is known: a matrix exponential of zeros is done at once, and nothing can be drawn by
# chances of zero.
SOME = 0.5

# An allocation or a free: its address, and its bytes, negative of what was freed.
Change: TypeAlias = tuple[int, int]


class Taken(NamedTuple):
    """Bytes. inside: at the most while it ran, beyond what was left as it ended; kept: of that, beyond the results.
    sizes, order: as KernelAllocations has them (probes.allocations). seconds: of CPU time that the run took, whenever
    that was."""

    inside: int
    kept: int
    sizes: tuple[int, ...]
    order: tuple[int, ...]
    seconds: float


@cache
def start_profiler() -> None:
    """The first profile of a process takes up to a second, and is no kernel's."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True):
        pass


@lru_cache(maxsize=1024)
def measure_call(call: Call) -> Taken:
    """What its first run took."""
    return run_call(call)


def run_call(call: Call) -> Taken:
    """Runs it, watched: what torch's allocator hands out."""
    begun = time.thread_time()
    with unset_fake_temporarily(), no_dispatch(), torch.inference_mode(mode=False), torch.enable_grad():
        fill = SOME if call.unknown else 0.0
        real = list(_thaw(call.arguments, fill))
        options = {name: _thaw(value, fill) for name, value in call.options}
        if call.operation is aten.mkldnn_rnn_layer_backward.default:
            real[-1] = _workspace(real)
        elif call.operation is aten.native_batch_norm_backward.default:
            # What its forward kept of bf16 images is in fp32; fake tensors have it in bf16.
            real[5:7] = [None if each is None else each.float() for each in real[5:7]]
        with _surroundings(call), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watched:
            result = call.operation(*real, **options)
    assert watched.profiler is not None
    assert watched.profiler.kineto_results is not None
    changes = _own(_allocations_in(watched.profiler.kineto_results.experimental_event_tree()))
    alive = list(accumulate((change for _, change in changes), initial=0))
    inside, kept = max(alive) - alive[-1], max(alive[-1] - _bytes(result), 0)
    return Taken(inside, kept, *_given_back(changes), time.thread_time() - begun)


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


def _thaw(value: Any, fill: float = 0.0) -> Any:
    """fill: the numbers with a point."""
    if isinstance(value, Shape):
        among = value.expanded or (False,) * len(value.sizes)
        sizes = [1 if among[axis] else value.sizes[axis] for axis in value.order]
        back = sorted(range(len(sizes)), key=lambda place: value.order[place])
        filled = torch.zeros(sizes, dtype=value.dtype)
        if fill and (value.dtype.is_floating_point or value.dtype.is_complex):
            filled.fill_(fill)
        filled = filled.permute(back).expand(value.sizes)
        return torch.nn.Parameter(filled) if value.weight and value.dtype.is_floating_point else filled
    return [_thaw(item, fill) for item in value] if isinstance(value, tuple) else value
