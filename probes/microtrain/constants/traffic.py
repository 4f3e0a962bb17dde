"""Light operations, whose cost follows the bytes they move, over sizes from a cache's to memory's.

Each writes a fresh tensor, as in a network, so that the allocator's part is in it.
"""

from __future__ import annotations

import contextlib
import mmap

import torch
from torch.nn import functional

from probes.microtrain.constants.bench import Action, Bench, Effort, element_bytes, random_tensor
from probes.microtrain.processes.footprint import count_page_faults
from probes.workload.description import Plan

# Elements of one tensor: 64 KiB, 1 MiB and 16 MiB in fp32; with the full effort more between and one beyond any cache.
SIZES_QUICK = (1 << 14, 1 << 18, 1 << 22)
SIZES_FULL = (1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24)
FRESH_BYTES = 8 << 20
# As malloc asks for memory. Python's own choice is to share it, whose pages take twice as long (2.8 us against 1.5 on
# an EPYC, Zen 5).
PRIVATE = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_ANONYMOUS") else {}
WIDTH = 256  # of a row that is normalized, reduced or gathered


def _sizes(effort: Effort) -> tuple[int, ...]:
    return SIZES_QUICK if effort == "quick" else SIZES_FULL


def elementwise(plan: Plan, effort: Effort) -> list[Bench]:
    """The sum of two tensors: two read, one written."""

    def bench(size: int) -> Bench:
        def make() -> Action:
            left, right = random_tensor(plan, size), random_tensor(plan, size)
            return lambda: torch.add(left, right)

        return Bench("elementwise", plan, {"elements": size}, make, float(size), 3.0 * size * element_bytes(plan))

    return [bench(size) for size in _sizes(effort)]


def bandwidth(plan: Plan, effort: Effort) -> list[Bench]:
    """A copy into memory that is there already: one read, one written; nothing is allocated."""

    def bench(size: int) -> Bench:
        def make() -> Action:
            source = random_tensor(plan, size)
            target = source.clone()  # written once: whose pages have been given to it
            return lambda: target.copy_(source)

        return Bench("bandwidth", plan, {"elements": size}, make, 0.0, 2.0 * size * element_bytes(plan))

    return [bench(size) for size in _sizes(effort)]


def copy(plan: Plan, effort: Effort) -> list[Bench]:
    """A copy that changes the order of dimensions, as `.contiguous()` after a transpose does."""

    def bench(size: int) -> Bench:
        def make() -> Action:
            source = random_tensor(plan, size // WIDTH, WIDTH)
            return lambda: source.t().contiguous()

        return Bench("copy", plan, {"elements": size}, make, 0.0, 2.0 * size * element_bytes(plan))

    return [bench(size) for size in _sizes(effort)[:: 1 if effort == "full" else 2]]


def normalization(plan: Plan, effort: Effort) -> list[Bench]:
    """Layer norm over rows of 256."""

    def bench(size: int) -> Bench:
        def make() -> Action:
            rows, weight = random_tensor(plan, size // WIDTH, WIDTH), random_tensor(plan, WIDTH)
            return lambda: functional.layer_norm(rows, (WIDTH,), weight, weight)

        return Bench("normalization", plan, {"elements": size}, make, 0.0, 2.0 * size * element_bytes(plan))

    return [bench(size) for size in _sizes(effort)]


def reduction(plan: Plan, effort: Effort) -> list[Bench]:
    """The sum of each row of 256: all read, little written."""

    def bench(size: int) -> Bench:
        def make() -> Action:
            rows = random_tensor(plan, size // WIDTH, WIDTH)
            return lambda: rows.sum(dim=1)

        moved = (size + size // WIDTH) * element_bytes(plan)
        return Bench("reduction", plan, {"elements": size}, make, float(size), float(moved))

    return [bench(size) for size in _sizes(effort)[:: 1 if effort == "full" else 2]]


def gather(plan: Plan, effort: Effort) -> list[Bench]:
    """Random rows of 256 out of a table of 10,000, as an embedding looks them up; indices are 8 bytes a row."""

    def bench(size: int) -> Bench:
        rows = size // WIDTH

        def make() -> Action:
            table = random_tensor(plan, 10_000, WIDTH)
            places = torch.randint(10_000, (rows,), device=table.device)
            return lambda: functional.embedding(places, table)

        return Bench("gather", plan, {"rows": rows}, make, 0.0, 2.0 * size * element_bytes(plan) + 8.0 * rows)

    return [bench(size) for size in _sizes(effort)[:: 1 if effort == "full" else 2]]


def page_fault(plan: Plan, effort: Effort) -> list[Bench]:
    """Ones into memory that the system gives anew each time, and takes back, and into memory that is there already;
    `faults` tells how many pages that was. The quick one first: one without the other is worth nothing. Threads take
    faults side by side; no precision: bytes are bytes."""
    if not plan.is_cpu or plan.precision != "fp32":
        return []

    def write_fresh() -> Action:
        """Past malloc, which may have room for it in the heap."""
        return lambda: torch.frombuffer(fresh_memory(), dtype=torch.uint8).fill_(1)

    def write_again() -> Action:
        there = torch.ones(FRESH_BYTES, dtype=torch.uint8)
        return lambda: there.fill_(1)

    before = count_page_faults()
    write_fresh()()
    faults = count_page_faults() - before
    return [
        Bench("page-fault", plan, {"bytes": FRESH_BYTES, "faults": 0}, write_again, 0.0, float(FRESH_BYTES)),
        Bench("page-fault", plan, {"bytes": FRESH_BYTES, "faults": faults}, write_fresh, 0.0, float(FRESH_BYTES)),
    ]


def fresh_memory() -> mmap.mmap:
    """Given page by page: where huge pages are on for all memory, one fault would zero two megabytes, and a step that
    finds single ones fresh would be told to take hundreds of times as long."""
    memory = mmap.mmap(-1, FRESH_BYTES, **PRIVATE)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without huge pages
            memory.madvise(mmap.MADV_NOHUGEPAGE)
    return memory
