"""The C library's heap on Linux, as glibc's published source has it: which bytes a process holds for what it asked for.

The rules are those of malloc/malloc.c (glibc 2.36), with the default settings: a request is carved from the free chunk
that fits best, else from the top of the heap, else mapped by itself if it is larger than a threshold that rises with
what was mapped before (mallopt(3), M_MMAP_THRESHOLD, M_TRIM_THRESHOLD). An aligned request asks for more than it keeps
and gives back both ends as small chunks, which do not join their neighbours at once and are soon taken by others: so
freed tensors lie apart, none of which is large enough for the next tensor of its own size.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

PAGE_BYTES = 4096
GRAIN_BYTES = 16  # MALLOC_ALIGNMENT
MIN_CHUNK_BYTES = 32  # MINSIZE
HEADER_BYTES = 8  # SIZE_SZ: what a chunk takes beside its block
TENSOR_ALIGNMENT = 64  # c10/core/alignment.h, gAlignment
TOP_PAD_BYTES = 128 * 1024  # M_TOP_PAD
DEFAULT_THRESHOLD_BYTES = 128 * 1024  # M_MMAP_THRESHOLD, M_TRIM_THRESHOLD
MAX_THRESHOLD_BYTES = 32 * 2**20  # DEFAULT_MMAP_THRESHOLD_MAX
CACHED_BYTES, CACHED_EACH = 1040, 7  # tcache: chunks up to this size, so many of each
FAST_BYTES = 128  # fastbins: chunks up to this size
SMALL_BYTES = 1024  # from here on a request first joins what lies in the fastbins
JOINING_BYTES = 64 * 1024  # FASTBIN_CONSOLIDATION_THRESHOLD: freeing so much may shrink the heap
# What an aligned request asks for beyond its chunk: the alignment, a smallest chunk and a header, in grains.
ALIGNED_BYTES = TENSOR_ALIGNMENT + MIN_CHUNK_BYTES + GRAIN_BYTES
PLACE_BITS = 44  # no heap is larger
PLACE_MASK = (1 << PLACE_BITS) - 1


@dataclass(slots=True)
class Heap:
    """held: bytes that the process has of the system and has touched; held_peak: the most that it had. fresh_pages:
    touched for the first time since the system gave them, so many faults."""

    threshold: int = DEFAULT_THRESHOLD_BYTES
    held_peak: int = 0
    fresh_pages: int = 0
    _top: int = 0  # where the heap's last, free chunk begins
    _end: int = 0  # where the heap ends
    _touched: int = 0  # up to where
    _mapped: int = 0
    _mappings: int = 0
    _used: dict[int, int] = field(default_factory=dict)  # chunk -> size; mappings have negative numbers
    _sorted: list[int] = field(default_factory=list)  # free chunks that may join: size << PLACE_BITS, and place
    _begins: dict[int, int] = field(default_factory=dict)  # the same by where they begin: size
    _ends: dict[int, int] = field(default_factory=dict)  # and by where they end: chunk
    _cached: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    _fast: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))

    @property
    def held(self) -> int:
        return self._touched + self._mapped

    @property
    def system_bytes(self) -> int:
        """Had of the system, touched or not: `arena` and `hblkhd` of mallinfo(3)."""
        return self._end + self._mapped

    @property
    def _trim_threshold(self) -> int:
        """So much free at the top goes back; it moves with the other."""
        return DEFAULT_THRESHOLD_BYTES if self.threshold == DEFAULT_THRESHOLD_BYTES else 2 * self.threshold

    def allocate(self, size: int) -> int:
        """malloc(3): the block's handle."""
        return self.allocate_chunks((chunk_bytes(size),))[0]

    def allocate_chunks(self, chunks: Iterable[int]) -> list[int]:
        """The same of several blocks in a row, by what they take (chunk_bytes), for those who know it."""
        cached, used = self._cached, self._used
        places = []
        for chunk in chunks:
            waiting = cached.get(chunk)
            if waiting:
                place = waiting.pop()
                used[place] = chunk
            else:
                place = self._take(chunk)
            places.append(place)
        return places

    def allocate_aligned(self, size: int) -> int:
        """posix_memalign(3), as torch allocates tensors."""
        return self.allocate_aligned_chunk(chunk_bytes(size))

    def allocate_aligned_chunk(self, chunk: int) -> int:
        """The same by what it takes (chunk_bytes)."""
        place, taken = self._carve(chunk + ALIGNED_BYTES)
        if place >= 0:
            lead = -(place + GRAIN_BYTES) % TENSOR_ALIGNMENT
            if lead:
                lead += TENSOR_ALIGNMENT if lead < MIN_CHUNK_BYTES else 0
                waiting = self._cached[lead]
                (waiting if len(waiting) < CACHED_EACH else self._fast[lead]).append(place)  # both take one as small
                place, taken = place + lead, taken - lead
            if taken > chunk + MIN_CHUNK_BYTES:
                self._release(place + chunk, taken - chunk)
                taken = chunk
        self._used[place] = taken
        return place

    def free(self, *places: int) -> None:
        """free(3), one after the other."""
        used, cached = self._used, self._cached
        for place in places:
            size = used.pop(place)
            if size <= CACHED_BYTES and len(waiting := cached[size]) < CACHED_EACH:  # no mapping is as small
                waiting.append(place)
            elif size <= FAST_BYTES:
                self._fast[size].append(place)
            elif place >= 0:
                self._release_joining(place, size)
            else:
                self._mapped -= size
                if self.threshold < size <= MAX_THRESHOLD_BYTES:
                    self.threshold = size

    def _take(self, chunk: int) -> int:
        """_int_malloc: a chunk of at least that size."""
        waiting = self._fast.get(chunk)
        if waiting:
            place = waiting.pop()
        else:
            place, chunk = self._carve(chunk)
        self._used[place] = chunk
        return place

    def _carve(self, chunk: int) -> tuple[int, int]:
        """The same of one that no fastbin holds: its place, and what it took. What fits best, without what it has too
        much; else from the top."""
        if chunk >= SMALL_BYTES and self._fast:
            self._join_fast()
        by_size = self._sorted
        index = bisect_left(by_size, chunk << PLACE_BITS)
        if index < len(by_size):
            found = by_size.pop(index)
            size, place = found >> PLACE_BITS, found & PLACE_MASK
            end = place + size
            del self._begins[place]
            left = size - chunk
            if left < MIN_CHUNK_BYTES:
                del self._ends[end]
                return place, size
            place_left = place + chunk
            self._begins[place_left] = left
            self._ends[end] = place_left
            insort(by_size, (left << PLACE_BITS) + place_left)
            return place, chunk
        if chunk >= self.threshold and self._end - self._top < chunk + MIN_CHUNK_BYTES:
            return self._map(chunk)
        return self._from_top(chunk), chunk

    def _from_top(self, chunk: int) -> int:
        missing = chunk + MIN_CHUNK_BYTES - (self._end - self._top)
        if missing > 0:
            self._end += _up(missing + TOP_PAD_BYTES, PAGE_BYTES)
        place, self._top = self._top, self._top + chunk
        touched = _up(self._top, PAGE_BYTES)
        if touched > self._touched:
            self.fresh_pages += (touched - self._touched) // PAGE_BYTES
            self._touched = touched
            self.held_peak = max(self.held_peak, self.held)
        return place

    def _map(self, chunk: int) -> tuple[int, int]:
        size = _up(chunk + HEADER_BYTES, PAGE_BYTES)
        self._mapped += size
        self.fresh_pages += size // PAGE_BYTES
        self.held_peak = max(self.held_peak, self.held)
        self._mappings += 1
        return -self._mappings, size

    def _release(self, place: int, size: int) -> None:
        """_int_free."""
        if size <= CACHED_BYTES and len(waiting := self._cached[size]) < CACHED_EACH:
            waiting.append(place)
        elif size <= FAST_BYTES:
            self._fast[size].append(place)
        else:
            self._release_joining(place, size)

    def _release_joining(self, place: int, size: int) -> None:
        """The same of one that neither tcache nor fastbins take."""
        if self._join(size, (place,)) >= JOINING_BYTES:
            self._join_fast()
            self._trim()

    def _join(self, each: int, places: Iterable[int]) -> int:
        """Chunks of this size with their free neighbours; the size of what the last has become."""
        begins, ends, by_size = self._begins, self._ends, self._sorted
        size = each
        for place in places:
            size = each
            before = ends.pop(place, None)
            if before is not None:
                length = begins.pop(before)
                del by_size[bisect_left(by_size, (length << PLACE_BITS) + before)]
                place, size = before, size + length
            after = place + size
            length = begins.pop(after, 0)
            if length:
                del ends[after + length], by_size[bisect_left(by_size, (length << PLACE_BITS) + after)]
                size += length
            if place + size == self._top:
                self._top = place
                size = self._end - place
            else:
                begins[place] = size
                ends[place + size] = place
                insort(by_size, (size << PLACE_BITS) + place)
        return size

    def _join_fast(self) -> None:
        """malloc_consolidate."""
        fast = self._fast
        while fast:
            self._join(*fast.popitem())

    def _trim(self) -> None:
        """systrim: what lies free at the top goes back, but for the pad."""
        free = self._end - self._top
        spare = free - MIN_CHUNK_BYTES - 1 - TOP_PAD_BYTES
        if free >= self._trim_threshold and spare > 0:
            self._end -= spare // PAGE_BYTES * PAGE_BYTES
            self._touched = min(self._touched, self._end)


def chunk_bytes(size: int) -> int:
    """What a request takes of the heap."""
    return max((size + HEADER_BYTES + GRAIN_BYTES - 1) & -GRAIN_BYTES, MIN_CHUNK_BYTES)


def _up(size: int, unit: int) -> int:
    return -(-size // unit) * unit
