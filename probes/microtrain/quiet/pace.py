"""How quick the cores are at this moment: fixed work, timed beside what is measured.

On a virtual machine no counter shows that another machine computes on the other thread of a core, or that the host
runs two of ours on one: for tenths of a second to seconds, steps take up to twice as long (docs/estimates.md, "What
neighbours do"). Exponentials hear it well: arithmetic that lies in the nearest cache, and nothing else.

They do not hear where the host has put our cores: on two that share no cache, steps of two threads take up to 1.6 times
as long, for seconds to half a minute, and exponentials 1.08 (docs/decisions/0013). So after each of them a thread reads
what the next one has just written, which takes three times as long then.
"""

from __future__ import annotations

import math
import mmap
import time
from collections.abc import Callable
from functools import cache

import torch

ELEMENTS = 32_768  # of each thread, which is where torch begins to divide: on any count of them it takes as long
REPEATS = 4  # 0.16 ms on one thread and 0.22 on two (EPYC, Zen 4), about half of it exponentials
# After other work the first exponentials take up to twice as long for 0.1 to 1 ms, be it products of matrices, copies
# or threads that slept (Xeon, Granite Rapids; docs/decisions/0013): none of that is a neighbour's. So a reading goes
# on until it is as quick as the quickest of its process, or for so long.
AS_QUICK = 1.05
SECONDS = 0.002

_quickest: dict[int, float] = {}  # by threads


def read_pace(clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds of the fixed work on as many threads as torch has now, once they are at work; comparable among equally
    many."""
    threads = torch.get_num_threads()
    quickest = _quickest.get(threads, 0.0)
    _tensors(threads)  # what making them takes, the first time, is none of the reading's
    begun = now = clock()
    found = math.inf
    while now - begun < SECONDS and found > AS_QUICK * quickest:
        before = now
        repeat_work()
        now = clock()
        found = min(found, now - before)
    _quickest[threads] = min(found, quickest or found)
    return found


def repeat_work() -> None:
    values, results, written, beside = _tensors(torch.get_num_threads())
    with torch.inference_mode():
        for _ in range(REPEATS):
            torch.exp(values, out=results)
            torch.add(written, 1.0, out=written)
            torch.add(beside, 1.0, out=results)


@cache
def _tensors(threads: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """(values, results, written, beside): as many parts as threads each; a thread's part of `beside` is the one of
    `written` behind its own."""
    values, results = (_outside_the_heap(ELEMENTS * threads) for _ in range(2))
    torch.linspace(-1, 1, len(values), out=values, device=values.device)  # not where torch puts what names no device
    shared = _outside_the_heap(ELEMENTS * (threads + 1))
    return values, results, shared[: ELEMENTS * threads], shared[ELEMENTS:]


def _outside_the_heap(elements: int) -> torch.Tensor:
    """In the heap it would stay between the blocks of steps, and decide what of them goes back to the system."""
    return torch.frombuffer(mmap.mmap(-1, elements * torch.float32.itemsize), dtype=torch.float32)
