"""How quick the cores are at this moment: fixed work, timed beside what is measured.

On a virtual machine no counter shows that another machine computes on the other thread of a core, or that the host
runs two of ours on one: for tenths of a second to seconds, steps take up to twice as long (docs/estimates.md, "What
neighbours do"). Exponentials hear it well: arithmetic that lies in the nearest cache, and nothing else.
"""

from __future__ import annotations

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
    # A user's code may have changed what torch makes where nothing is said.
    values = torch.linspace(-1, 1, ELEMENTS * threads, dtype=torch.float32, device="cpu")
    return values, torch.empty_like(values)
