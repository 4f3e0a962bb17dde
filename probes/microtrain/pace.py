"""How quick the cores are at this moment: fixed work, timed beside what is measured.

On a virtual machine no counter shows that another machine computes on the other thread of a core, or that the host
runs two of ours on one: for tenths of a second to seconds, steps take up to twice as long (docs/estimates.md, "What
neighbours do"). Exponentials hear it well: arithmetic that lies in the nearest cache, and nothing else.
"""

from __future__ import annotations

import mmap
import time
from functools import cache

import torch

ELEMENTS = 32_768  # of each thread, which is where torch begins to divide: on any count of them it takes as long
REPEATS = 8  # 0.2 ms


def read_pace() -> float:
    """Seconds of the fixed work on as many threads as torch has now; comparable among equally many."""
    values, results = _tensors(torch.get_num_threads())
    with torch.inference_mode():
        torch.exp(values, out=results)  # wakes the threads
        begun = time.perf_counter()
        for _ in range(REPEATS):
            torch.exp(values, out=results)
        return time.perf_counter() - begun


@cache
def _tensors(threads: int) -> tuple[torch.Tensor, torch.Tensor]:
    values, results = (_outside_the_heap(ELEMENTS * threads) for _ in range(2))
    torch.linspace(-1, 1, len(values), out=values)
    return values, results


def _outside_the_heap(elements: int) -> torch.Tensor:
    """In the heap it would stay between the blocks of steps, and decide what of them goes back to the system."""
    return torch.frombuffer(mmap.mmap(-1, elements * torch.float32.itemsize), dtype=torch.float32)
