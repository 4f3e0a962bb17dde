"""What a process allocated before decides where its heap's free blocks lie."""

from __future__ import annotations

import ctypes
import random
import sys

import pytest

from probes.microtrain.processes import fresh_processes
from probes.microtrain.processes.fresh_processes import run_fresh
from probes.microtrain.processes.heap_litter import LITTER_BYTES, litter_heap

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the heap is glibc's")


class Heap(ctypes.Structure):
    """mallinfo2(3)."""

    _fields_ = (
        ("arena", ctypes.c_size_t),
        ("ordblks", ctypes.c_size_t),
        ("between", ctypes.c_size_t * 5),
        ("uordblks", ctypes.c_size_t),
        ("fordblks", ctypes.c_size_t),
        ("keepcost", ctypes.c_size_t),
    )


def free_chunks_and_used_bytes(seed: int | None) -> tuple[int, int, int]:
    """Of a process whose heap was littered: free chunks and used bytes, and how many of these litter added."""
    read = ctypes.CDLL(None).mallinfo2
    read.restype = Heap
    before = read().uordblks
    litter_heap(None if seed is None else random.Random(seed))
    after = read()
    return after.ordblks, after.uordblks, after.uordblks - before


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="glibc 2.33 or newer")
def test_forks_of_one_process_have_heaps_of_their_own() -> None:
    fresh_processes.prepare()
    heaps = [run_fresh(free_chunks_and_used_bytes, (None,), lambda: None) for _ in range(3)]
    assert len({heap[:2] for heap in heaps}) == 3
    assert all(LITTER_BYTES / 8 < added < LITTER_BYTES for _, _, added in heaps)  # half of it stays
    same = [run_fresh(free_chunks_and_used_bytes, (1,), lambda: None)[2] for _ in range(2)]
    assert same[0] == same[1]


def test_a_c_library_without_a_heap_to_litter_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str | None) -> object:
        raise OSError(name)

    monkeypatch.setattr("ctypes.CDLL", missing)
    litter_heap()
