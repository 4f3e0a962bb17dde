"""What a step asks a device's allocator for, and gives back, in order; kept as a short text in a trace."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from probes.trace import Affine

RESULT = -1  # in a kernel's order


class Allocations(NamedTuple):
    """sizes: bytes over the batch of each allocation; the first `resident` of them live from step to step. order: what
    a step does: 0 makes the next allocation, n frees the n-th."""

    sizes: tuple[Affine, ...]
    resident: int
    order: tuple[int, ...]


class KernelAllocations(NamedTuple):
    """What a kernel asks for while it runs, and gives back before it ends. sizes: bytes over the batch of each
    allocation; order: as in Allocations, and RESULT where it makes what it returns, which the step's own order has."""

    sizes: tuple[Affine, ...]
    order: tuple[int, ...]


class Log(NamedTuple):
    """Of one step at one batch size; as Allocations has it."""

    sizes: list[int]
    resident: int
    order: list[int]


def sorted_frees(order: list[int]) -> list[int]:
    """What is freed in a row is freed in the order of its allocation: Python lets go of it in any."""
    found: list[int] = []
    for _, run in groupby(order, key=bool):
        found += sorted(run)
    return found


def pack(batch_sizes: tuple[int, int], one: Log, other: Log) -> str:
    """Empty where the steps at the two batch sizes do not free alike."""
    if one.order != other.order or one.resident != other.resident:
        return ""
    pairs = list(zip(one.sizes, other.sizes, strict=True))
    text = json.dumps([batch_sizes, pairs, one.resident, one.order], separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode())).decode()


@lru_cache(maxsize=8)
def unpack(text: str) -> Allocations | None:
    """Only of a text that this machine wrote: what others wrote is not read (probes.trace_check)."""
    if not text:
        return None
    (small, large), pairs, resident, order = json.loads(zlib.decompress(base64.b64decode(text)))
    return Allocations(tuple(_line(small, large, pair) for pair in pairs), resident, tuple(order))


def _line(small: int, large: int, pair: Sequence[int]) -> Affine:
    slope = (pair[1] - pair[0]) / (large - small)
    return Affine(pair[0] - slope * small, slope)
