"""torch's caching allocator for CUDA, as its published source has it: which bytes it holds for what was asked for.

The rules are those of c10/cuda/CUDACachingAllocator.cpp (torch 2.9), with the default settings: requests are rounded
up to 512 bytes; up to 1 MiB they come from a pool of segments of 2 MiB; from there to 10 MiB from segments of 20 MiB,
larger ones from segments of their own, rounded up to 2 MiB. The smallest free block that is large enough is taken
(best fit), and split where what remains is of use; a freed block joins its free neighbours. Nothing here was measured
on a card: libraries' workspaces and the context are apart, and no segment is given back, as when memory runs out.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field

MIB = 2**20
MIN_BLOCK_BYTES = 512  # kMinBlockSize
SMALL_BYTES = MIB  # kSmallSize: the largest request of the small pool
SMALL_SEGMENT_BYTES = 2 * MIB  # kSmallBuffer
LARGE_SEGMENT_BYTES = 20 * MIB  # kLargeBuffer
MIN_LARGE_BYTES = 10 * MIB  # kMinLargeAlloc: from here on a request has a segment of its own
ROUND_LARGE_BYTES = 2 * MIB  # kRoundLarge


def rounded(size: int) -> int:
    """What a request takes of a segment."""
    return max(_up(size, MIN_BLOCK_BYTES), MIN_BLOCK_BYTES)


def segment_bytes(size: int) -> int:
    """How large a segment a rounded request makes the allocator reserve."""
    if size <= SMALL_BYTES:
        return SMALL_SEGMENT_BYTES
    return LARGE_SEGMENT_BYTES if size < MIN_LARGE_BYTES else _up(size, ROUND_LARGE_BYTES)


def _up(size: int, unit: int) -> int:
    return -(-size // unit) * unit


@dataclass(eq=False, slots=True)
class Block:
    """A stretch of a segment, beside its neighbours there."""

    size: int
    place: int  # across all segments, in order of their reservation
    small: bool
    before: Block | None = None
    after: Block | None = None
    free: bool = False

    @property
    def rank(self) -> tuple[int, int]:
        return self.size, self.place


@dataclass(slots=True)
class CachingAllocator:
    """reserved, allocated: bytes now; the peaks are the most that they were."""

    reserved: int = 0
    allocated: int = 0
    reserved_peak: int = 0
    allocated_peak: int = 0
    _free: dict[bool, list[tuple[int, int]]] = field(default_factory=lambda: {True: [], False: []})  # ranks
    _free_at: dict[int, Block] = field(default_factory=dict)  # by place

    def allocate(self, size: int) -> Block:
        wanted = rounded(size)
        block = self._best_fit(wanted) or self._reserve(wanted)
        if _is_split(block.size - wanted, small=block.small):
            self._keep(_split(block, wanted))
        block.free = False
        self.allocated += block.size
        self.allocated_peak = max(self.allocated_peak, self.allocated)
        return block

    def free(self, block: Block) -> None:
        self.allocated -= block.size
        for neighbour in (block.before, block.after):
            if neighbour is not None and neighbour.free:
                self._forget(neighbour)
                _join(block, neighbour)
        self._keep(block)

    def _best_fit(self, wanted: int) -> Block | None:
        """The smallest free block of the pool that is large enough; of equals the first."""
        blocks = self._free[wanted <= SMALL_BYTES]
        first = bisect_left(blocks, (wanted, 0))
        return self._free_at.pop(blocks.pop(first)[1]) if first < len(blocks) else None

    def _reserve(self, wanted: int) -> Block:
        size = segment_bytes(wanted)
        block = Block(size, self.reserved, small=wanted <= SMALL_BYTES)
        self.reserved += size
        self.reserved_peak = max(self.reserved_peak, self.reserved)
        return block

    def _keep(self, block: Block) -> None:
        block.free = True
        insort(self._free[block.small], block.rank)
        self._free_at[block.place] = block

    def _forget(self, block: Block) -> None:
        blocks = self._free[block.small]
        del blocks[bisect_left(blocks, block.rank)], self._free_at[block.place]


def _is_split(remaining: int, *, small: bool) -> bool:
    """should_split: in the small pool from 512 bytes on, in the large one above 1 MiB."""
    return remaining >= MIN_BLOCK_BYTES if small else remaining > SMALL_BYTES


def _split(block: Block, wanted: int) -> Block:
    """What remains behind the first so many bytes."""
    rest = Block(block.size - wanted, block.place + wanted, block.small, before=block, after=block.after)
    if block.after is not None:
        block.after.before = rest
    block.after, block.size = rest, wanted
    return rest


def _join(block: Block, neighbour: Block) -> None:
    """The neighbour becomes a part of the block."""
    block.size += neighbour.size
    if neighbour is block.before:
        block.place, block.before = neighbour.place, neighbour.before
        if block.before is not None:
            block.before.after = block
        return
    block.after = neighbour.after
    if block.after is not None:
        block.after.before = block
