"""The heap's rules, held against the C library of this machine in a process of its own."""

from __future__ import annotations

import json
import platform
import random
import subprocess
import sys

import pytest

from probes.glibc_heap import DEFAULT_THRESHOLD_BYTES, PAGE_BYTES, Heap

# Python's own blocks are small and few beside these. What is asked for is not touched: the sums are the library's.
REAL = """
import ctypes, json, sys

class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd a b c d keepcost".split()]

libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Info
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
pointer, blocks = ctypes.c_void_p(), {}

def held():
    info = libc.mallinfo2()
    return info.arena + info.hblkhd

before = held()
found = []
for number, size in json.load(sys.stdin):
    if size < 0:
        libc.free(blocks.pop(number))
    elif size < 1024:
        blocks[number] = libc.malloc(ctypes.c_size_t(size))
    else:
        libc.posix_memalign(ctypes.byref(pointer), ctypes.c_size_t(64), ctypes.c_size_t(size))
        blocks[number] = pointer.value
    found.append(held() - before)
print(json.dumps(found))
"""
Events = list[tuple[int, int]]  # a block's number, and its size; -1: it is freed
MIB = 2**20


def a_step(largest: int, blocks: int, seed: int) -> Events:
    """Three times: blocks with small ones beside them are made, and freed from the last to the first or at once."""
    chance, events, number = random.Random(seed), [], 0
    for _ in range(3):
        live = []
        for _ in range(blocks):
            for size in (chance.choice([largest // 64, largest // 3, largest]) + chance.randrange(64) * 16, 176, 96):
                number += 1
                events.append((number, size))
                live.append(number)
            if chance.random() < 0.3:
                events.append((live.pop(chance.randrange(len(live))), -1))
        events += [(number, -1) for number in reversed(live)]
        number += 1
        events.append((number, 5000))  # what stays
    return events


def simulated(events: Events) -> list[int]:
    heap, blocks, found = Heap(), {}, []
    for number, size in events:
        if size < 0:
            heap.free(blocks.pop(number))
        else:
            blocks[number] = heap.allocate(size) if size < 1024 else heap.allocate_aligned(size)
        found.append(heap.system_bytes)
    return found


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library: its rules are not simulated")
@pytest.mark.parametrize("largest", [400_000, MIB, 12 * MIB, 80 * MIB])
@pytest.mark.parametrize("seed", [1, 2])
def test_the_heap_holds_what_the_c_library_holds(largest: int, seed: int) -> None:
    events = a_step(largest, 60, seed)
    run = subprocess.run(
        [sys.executable, "-c", REAL], input=json.dumps(events), capture_output=True, text=True, check=True
    )
    real, ours = json.loads(run.stdout), simulated(events)
    assert max(ours) == pytest.approx(max(real), rel=0.1)
    assert sum(ours) == pytest.approx(sum(real), rel=0.25)  # Python's own blocks lie there too, and decide on trimming


def test_a_freed_tensor_is_too_small_for_the_next_of_its_size() -> None:
    """Both ends of its chunk were given back, and small blocks lie there since."""
    heap = Heap(threshold=32 * MIB)
    tensors = [heap.allocate_aligned(MIB)]
    for _ in range(20):
        heap.allocate(40)
        tensors.append(heap.allocate_aligned(MIB))
    held = heap.held
    for tensor in tensors[::2]:
        heap.free(tensor)
    for _ in tensors[::2]:
        heap.allocate_aligned(MIB)
    assert heap.held > 1.2 * held


def test_large_blocks_are_mapped_and_go_back_whole() -> None:
    heap = Heap()
    block = heap.allocate_aligned(64 * MIB)
    assert heap.held == pytest.approx(64 * MIB, abs=2 * PAGE_BYTES)
    heap.free(block)
    assert heap.held == 0
    assert heap.held_peak > 64 * MIB
    assert heap.threshold == DEFAULT_THRESHOLD_BYTES  # only what is no larger than 32 MiB raises it


def test_the_threshold_rises_with_what_was_mapped() -> None:
    heap = Heap()
    heap.free(heap.allocate_aligned(8 * MIB))
    assert heap.threshold > 8 * MIB
    assert heap.held == 0
    heap.free(heap.allocate_aligned(8 * MIB))
    assert heap.held > 8 * MIB  # the heap keeps what is less than twice the threshold
    fresh = heap.fresh_pages
    heap.free(heap.allocate_aligned(7 * MIB))
    assert heap.fresh_pages == fresh
