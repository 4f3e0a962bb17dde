"""Leaves a process's heap as another script might: blocks in use between free ones, at places that chance decides.

Where the blocks of a step come to lie, and so how many pages it finds fresh of the system, depends on what its process
had allocated and freed before. Python processes that run the same script differ by it, as their addresses do; forks of
one process hardly do, and would all tell of one heap (docs/decisions/0014).
"""

from __future__ import annotations

import contextlib
import ctypes
import random

# So much, each order of magnitude of sizes as often: with it page faults of forks varied as those of separate processes
# did. 2 MiB, in blocks of up to 128 KiB, also filled what importing torch leaves free, and an LSTM's steps found
# two thirds of the fresh pages (0014).
LITTER_BYTES = 256 * 2**10
LEAST_BYTES, MOST_DOUBLINGS = 64, 8.0


def litter_heap(chance: random.Random | None = None) -> None:
    """Half of what it allocates stays for good. chance: None: another heap each time."""
    chance = chance or random.SystemRandom()
    with contextlib.suppress(OSError, AttributeError):  # a C library that has no such functions
        libc = ctypes.CDLL(None)
        libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
        libc.free.restype, libc.free.argtypes = None, [ctypes.c_void_p]
        blocks, total = [], 0
        while total < LITTER_BYTES:
            size = int(LEAST_BYTES * 2 ** (MOST_DOUBLINGS * chance.random()))
            blocks.append(libc.malloc(size))
            total += size
        chance.shuffle(blocks)
        for block in blocks[: len(blocks) // 2]:
            libc.free(block)
