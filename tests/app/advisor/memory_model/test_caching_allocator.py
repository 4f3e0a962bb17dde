"""The simulated allocator keeps to the rules that torch publishes."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.advisor.memory_model.caching_allocator import MIB, CachingAllocator, rounded, segment_bytes


@pytest.mark.parametrize(("size", "bytes"), [(0, 512), (1, 512), (512, 512), (513, 1024), (MIB, MIB)])
def test_requests_are_rounded_up_to_512_bytes(size: int, bytes: int) -> None:
    assert rounded(size) == bytes


@pytest.mark.parametrize(
    ("size", "bytes"),
    [
        (512, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 512, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (10 * MIB + 512, 12 * MIB),
        (101 * MIB, 102 * MIB),
    ],
)
def test_small_requests_share_segments_and_large_ones_have_their_own(size: int, bytes: int) -> None:
    assert segment_bytes(size) == bytes


def test_small_requests_fill_one_segment_before_another_is_reserved() -> None:
    allocator = CachingAllocator()
    for _ in range(4):
        allocator.allocate(512 * 1024)
    assert (allocator.allocated, allocator.reserved) == (2 * MIB, 2 * MIB)
    allocator.allocate(1)
    assert (allocator.allocated, allocator.reserved) == (2 * MIB + 512, 4 * MIB)


def test_what_was_freed_is_taken_again_and_stays_reserved() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.allocate(30 * MIB))
    assert (allocator.allocated, allocator.reserved) == (0, 30 * MIB)
    allocator.allocate(29 * MIB + 5)
    assert allocator.reserved == 30 * MIB
    assert allocator.reserved_peak == allocator.allocated_peak == 30 * MIB  # too little remained to be split off


def test_a_large_block_is_split_where_more_than_a_mebibyte_remains() -> None:
    allocator = CachingAllocator()
    allocator.allocate(4 * MIB)
    assert (allocator.allocated, allocator.reserved) == (4 * MIB, 20 * MIB)
    allocator.allocate(15 * MIB)
    assert (allocator.allocated, allocator.reserved) == (20 * MIB, 20 * MIB)


def test_the_smallest_free_block_that_is_large_enough_is_taken() -> None:
    allocator = CachingAllocator()
    large, between, middle = (allocator.allocate(size * MIB) for size in (40, 12, 24))
    allocator.free(large)
    allocator.free(middle)
    assert allocator.allocate(22 * MIB) is middle
    assert between.size == 12 * MIB


def test_free_neighbours_become_one_block_again() -> None:
    allocator = CachingAllocator()
    blocks = [allocator.allocate(5 * MIB) for _ in range(4)]
    for place in (0, 2, 1, 3):
        allocator.free(blocks[place])
    allocator.allocate(19 * MIB + MIB // 2)
    assert allocator.reserved == 20 * MIB


def test_the_pools_do_not_help_each_other_out() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.allocate(30 * MIB))
    allocator.allocate(100)
    assert allocator.reserved == 32 * MIB


@given(st.lists(st.tuples(st.integers(0, 64 * MIB), st.integers(0, 9)), max_size=60))
def test_nothing_is_lost_or_given_out_twice(requests: list[tuple[int, int]]) -> None:
    allocator, held = CachingAllocator(), []
    for size, drop in requests:
        held.append(allocator.allocate(size))
        if drop > 4:
            allocator.free(held.pop(drop % len(held)))
    spans = sorted((block.place, block.place + block.size) for block in held)
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))
    assert allocator.allocated == sum(block.size for block in held) <= allocator.reserved == allocator.reserved_peak
    for block in held:
        allocator.free(block)
    assert allocator.allocated == 0
