"""Memory that has been used before, for what is clocked next.

A virtual machine's host may give it a page only when the machine first touches it, once in the machine's life: 8.5 us a
page on one with two cores (70 ms for 32 MiB, 560 times in a row), where a page fault took 0.8 later on. By calibrations
of its first hour some products that write a large matrix took three to fifty times as long as they do
(docs/decisions/0005-operations-in-context.md).
"""

from __future__ import annotations

import mmap
import time

from probes.memory import read_memory
from probes.reading import Root, Unreadable

MOST_BYTES = 2**30  # what all processes of a calibration hold at a time is less
SHARE = 0.25  # of what may be used
PIECE_BYTES = 2**25


def touch_memory(seconds: float, most_bytes: int = MOST_BYTES) -> int:
    """Write once to so many bytes at most, in no more than about so many seconds, and give them back: the kernel hands
    out first what was given back last. Returns bytes; 0 where nothing tells how much may be used."""
    deadline = time.perf_counter() + seconds
    pieces: list[mmap.mmap] = []
    wanted = min(most_bytes, int(SHARE * _usable_bytes())) // PIECE_BYTES
    try:
        while len(pieces) < wanted and time.perf_counter() < deadline:
            piece = mmap.mmap(-1, PIECE_BYTES)
            piece[:: mmap.PAGESIZE] = bytes(PIECE_BYTES // mmap.PAGESIZE)
            pieces.append(piece)
    except OSError:  # no more is given
        pass
    for piece in pieces:
        piece.close()
    return len(pieces) * PIECE_BYTES


def _usable_bytes() -> int:
    try:
        return read_memory(Root()).memory.usable_bytes or 0
    except Unreadable:
        return 0
