"""A plan's memory where it took more than its estimate: raised at every batch size, to go through what was measured."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from app.advisor.memory_model.memory import MemoryEstimate
from app.advisor.memory_model.peaks import Peaks

# The parts that do not grow with the batch may be off by as much, and what is missing within it grows as little:
# WORKING_BYTES of transformers, the largest of what libraries take at work, are 153 MB. Of large weights, by so much.
FIXED_OFF_BYTES, FIXED_OFF = 150_000_000, 0.1
# What grows on a CPU may be off by so many times at most: beyond that it is something that the estimate lacks, such as
# a data set that one's own module holds, and one row does not tell that it grows.
MOST_TIMES = 4.0


class Took(NamedTuple):
    """What a step took, or more, with what the process takes beside. ran_out: it ended there, and nobody knows what it
    would have taken."""

    batch_size: int
    bytes: int
    ran_out: bool = False


def raised_to(memory: MemoryEstimate, took: Iterable[Took]) -> MemoryEstimate:
    """By one after the other. Never lowered: what takes less than its estimate at one batch may not at a larger one."""
    if memory.overhead is None and memory.on_cpu:
        return memory  # a process was measured with its libraries, of which the estimate knows nothing
    for each in took:
        memory = _raised(memory, each)
    return memory


def _raised(memory: MemoryEstimate, took: Took) -> MemoryEstimate:
    """What is missing beyond what the fixed parts may be off by grows with the batch as the estimate does. A device's
    allocator is not followed where it is another's."""
    estimated = memory.peak(took.batch_size)
    missing, grows = took.bytes - estimated, estimated - memory.fixed
    if missing <= 0:
        return memory
    constant = min(missing, FIXED_OFF_BYTES + FIXED_OFF * (memory.fixed - memory.data_set))
    factor = 1 + (missing - constant) / grows if grows > 0 else 1.0
    factor = min(factor, MOST_TIMES) if memory.on_cpu else factor
    constant = missing - (factor - 1) * max(grows, 0)
    return replace(
        memory,
        activations=memory.activations.plus(constant, factor),
        fragmentation=memory.fragmentation.plus(0.0, factor),
        update=Peaks(memory.update).plus(constant, factor).lines,
        trace=memory.trace if factor == 1.0 else None,
    )
