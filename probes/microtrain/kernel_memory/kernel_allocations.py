"""What kernels ask for while they run and give back, wherever a step runs them: for the simulation of the heap."""

from __future__ import annotations

import time
from collections.abc import Mapping

from probes.allocations import RESULT, KernelAllocations
from probes.microtrain.kernel_memory.kernel_calls import Call
from probes.microtrain.kernel_memory.kernel_trials import Taken
from probes.microtrain.kernel_memory.scratch import EASY_BYTES, EASY_FLOPS, MAX_BYTES, MAX_FLOPS, Budget
from probes.microtrain.kernel_memory.slow_kernels import is_slow, try_at
from probes.microtrain.traces.merging import affine, same_operations
from probes.microtrain.traces.primed_stepper import Recording
from probes.trace import Affine

# A trial at the largest of these sizes that is easy tells most: with one sample libraries go other ways.
SIZES = (1, 2, 4, 8, 16, 32)
# All of a trace's trials in one precision.
SECONDS = 0.5
# A loop inside a kernel (over channels, where oneDNN has none) asks for the same thousands of times:
# the first of them leave the heap as all do.
MOST_ALLOCATIONS = 64

Places = Mapping[int, list[KernelAllocations]]


def kernel_allocations(batch_sizes: tuple[int, int], one: Recording, other: Recording) -> Places:
    """By place in the order of the step's allocations. What takes most is tried first, and last those of which nobody
    knows whether they take anything, as long as there is time.

    one, other: the step at two batch sizes. Empty where it runs other operations at one than at the other."""
    if not same_operations(one.records, other.records):
        return {}
    budget = Budget(SECONDS)
    known: dict[tuple[Call, Call], KernelAllocations | None] = {}
    for a, b in sorted(_calls(one, other), key=lambda pair: (pair[1].unknown, -pair[1].bound)):
        known[a, b] = _over_batches(batch_sizes, a, b, budget)
    found: dict[int, list[KernelAllocations]] = {}
    for place, numbers in one.places.items():
        taken = [known.get((one.calls[n], other.calls[n])) for n in numbers]  # type: ignore[arg-type]
        if any(each is not None for each in taken):
            found[place] = [each for each in taken if each is not None]
    return found


def _calls(one: Recording, other: Recording) -> list[tuple[Call, Call]]:
    """Each once, in the step's order: which are tried while there is time is the same in every process."""
    numbers = [number for numbers in one.places.values() for number in numbers]
    pairs = ((one.calls[number], other.calls[number]) for number in numbers)
    return list(dict.fromkeys((a, b) for a, b in pairs if a is not None and b is not None))


def _over_batches(batch_sizes: tuple[int, int], one: Call, other: Call, budget: Budget) -> KernelAllocations | None:
    """In line with two sizes. None: it takes nothing, cannot be tried, or has no time."""
    flops = affine(batch_sizes, (one.flops, other.flops))
    bound = affine(batch_sizes, (one.bound, other.bound))
    easy = [size for size in SIZES if flops.at(size) <= EASY_FLOPS and bound.at(size) <= EASY_BYTES]
    sizes = (easy[-2], easy[-1]) if len(easy) > 1 else SIZES[:2]
    if flops.at(sizes[1]) > MAX_FLOPS or bound.at(sizes[1]) > MAX_BYTES:
        return None
    high = _try(batch_sizes, one, other, sizes[1], budget)
    if high is None or not high.sizes:
        return None
    low = _try(batch_sizes, one, other, sizes[0], budget)
    if low is None:
        return None
    if low.order == high.order:
        lines = (affine(sizes, pair) for pair in zip(low.sizes, high.sizes, strict=True))
        return _shortened(KernelAllocations(tuple(lines), high.order))
    # It goes another way at the smaller size: what it takes at the larger one, as its arguments grow.
    share = 1 / bound.at(sizes[1])
    lines = (Affine(size * bound.constant * share, size * bound.per_sample * share) for size in high.sizes)
    return _shortened(KernelAllocations(tuple(lines), high.order))


def _shortened(allocations: KernelAllocations) -> KernelAllocations:
    """The first so many, with their frees and all results."""
    sizes, order = allocations
    if len(sizes) <= MOST_ALLOCATIONS:
        return allocations
    kept, made = [], 0
    for event in order:
        made += event == 0
        if event == RESULT or (made if event == 0 else event) <= MOST_ALLOCATIONS:
            kept.append(event)
    return KernelAllocations(sizes[:MOST_ALLOCATIONS], tuple(kept))


def _try(batch_sizes: tuple[int, int], one: Call, other: Call, size: int, budget: Budget) -> Taken | None:
    if not budget.allows(0.0) or is_slow(batch_sizes, one, other, size):
        return None
    begun = time.thread_time()
    try:
        return try_at(batch_sizes, one, other, size)
    except Exception:  # noqa: BLE001 - zeros are no fit input for every operation, nor are its lists at any size
        return None
    finally:
        budget.spend(time.thread_time() - begun)
