"""What a step takes of a GPU by the published rules of torch's allocator: simulated, and held against two cards."""

from __future__ import annotations

from collections import defaultdict, deque
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from app.advisor.memory_model.caching_allocator import Block, CachingAllocator
from probes.allocations import Allocations, unpack
from probes.trace import AUTOCAST, Trace

STEPS = 2  # the second finds what the first left behind
# On a GPU torch.optim's default updates all tensors at once ("foreach"), and holds so many of each parameter's size for
# that moment: the roots of all second moments, and Adagrad's steps as well (torch/optim/adam.py, _multi_tensor_adam,
# and the same of rmsprop.py and adagrad.py).
HELD_AT_ONCE = {"adam": 1, "adamw": 1, "rmsprop": 1, "adagrad": 2}


class DevicePeaks(NamedTuple):
    """Bytes. allocated: in blocks, as torch.cuda.max_memory_allocated counts; reserved: max_memory_reserved."""

    allocated: int
    reserved: int


def device_peaks(trace: Trace, precision: str, batch_size: int) -> DevicePeaks | None:
    """None: what the step allocates is not known in this precision."""
    packed = trace.autocast_allocations if precision in AUTOCAST else trace.allocations
    return _simulated(packed, _held_at_once(trace), trace.parameter_tensors, batch_size)


def bytes_held_at_once(trace: Trace) -> int:
    """What the optimizer's step takes of a GPU beyond what lives from step to step."""
    return _held_at_once(trace) * trace.gradient_bytes


def _held_at_once(trace: Trace) -> int:
    return HELD_AT_ONCE.get(trace.optimizer, 0) if trace.mode == "training" else 0


@lru_cache(maxsize=256)
def _simulated(packed: str, held_each: int, parameters: int, batch_size: int) -> DevicePeaks | None:
    allocations = unpack(packed)
    if allocations is None:
        return None
    allocator = CachingAllocator()
    sizes = [max(round(line.at(batch_size)), 0) for line in allocations.sizes]
    resident = [allocator.allocate(size) for size in sizes[: allocations.resident]]
    for _ in range(STEPS):
        left = _step(allocator, allocations, sizes, resident)
        stepped = sizes[: allocations.resident : 2][:parameters]  # parameters come first
        held = [allocator.allocate(size) for size in held_each * stepped]
        for block in (*held, *left):
            allocator.free(block)
    return DevicePeaks(allocator.allocated_peak, allocator.reserved_peak)


def _step(
    allocator: CachingAllocator, allocations: Allocations, sizes: list[int], resident: list[Block]
) -> list[Block]:
    """What it leaves of what lives from step to step, gradients above all, takes the place of what it freed. What else
    it leaves, which is its batch and its loss, is alive while the optimizer steps."""
    live = dict(enumerate(resident, start=1))
    number = len(resident)
    for event in allocations.order:
        if event:
            allocator.free(live.pop(event))
        else:
            number += 1
            live[number] = allocator.allocate(sizes[number - 1])
    return _settle(allocator, live, sizes, resident)


def _settle(
    allocator: CachingAllocator, live: dict[int, Block], sizes: list[int], resident: list[Block]
) -> list[Block]:
    new: dict[int, deque[Block]] = defaultdict(deque)  # by size
    for number, block in live.items():
        if number > len(resident):
            new[sizes[number - 1]].append(block)
    for place, size in enumerate(sizes[: len(resident)]):
        if place + 1 not in live:
            resident[place] = new[size].popleft() if new[size] else allocator.allocate(size)
    return list(chain.from_iterable(new.values()))
