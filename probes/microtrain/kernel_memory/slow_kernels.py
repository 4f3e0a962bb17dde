"""Kernels whose trials take long on this machine: remembered by the process, so that the next of their kind waits for
none.

A processor without instructions for bf16 takes a second for what fp32 does in ten milliseconds (one sample of a BERT).
"""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from typing import NamedTuple

from probes.microtrain.kernel_memory.kernel_calls import WEIGHT_AND_GROUPS, Call, Shape, call_at
from probes.microtrain.kernel_memory.kernel_trials import Taken, measure_call, run_call
from probes.microtrain.traces.merging import affine

# One trial: a longer one is slow.
MAX_SECONDS = 0.1
# Of what takes no more than so many times as long, a second run tells whether it is slow: oneDNN compiles a kernel when
# it first runs, which beside other processes takes longer than any kernel should.
FIRST_RUN = 3.0
# For each FLOP and byte; no kernel was seen to compute so slowly (6e-9 s: two samples of a depthwise convolution in
# bf16 on a Zen 3). What takes longer did something else meanwhile: a product of 1,300 FLOPs took 0.3 s once, where it
# takes a millisecond (why is not known), and of all like it, expected to take minutes, none would be tried again.
MAX_SECONDS_EACH = 1e-8
# Kernels of one kind go at other paces by how much they compute with what they move: depthwise convolutions. Alike are
# those whose FLOPs a byte differ by no more than this factor.
ALIKE = 4.0


class Work(NamedTuple):
    """What a call computes and moves: flops; moved: a bound of its bytes; read: bytes; unfolded: as Call has it."""

    flops: float
    moved: float
    read: float
    unfolded: float = 0.0

    def is_like(self, other: Work) -> bool:
        mine, others = self.flops * other.moved, other.flops * self.moved  # FLOPs a byte, each times both bytes
        return mine <= ALIKE * others and others <= ALIKE * mine

    def times_as_large(self, other: Work) -> float:
        """By the bytes moved, whichever of both is larger."""
        small, large = sorted((max(self.moved, 1.0), max(other.moved, 1.0)))
        return large / small

    @property
    def total(self) -> float:
        return max(self.flops + self.moved, 1.0)


class Trial(NamedTuple):
    """inside: bytes."""

    work: Work
    seconds: float
    inside: float

    def inside_of(self, work: Work) -> float:
        """Bytes of another work, in proportion: to images unfolded where it had room for them, else to what is read."""
        if 0.0 < self.work.unfolded <= self.inside:
            return self.inside * work.unfolded / self.work.unfolded
        return self.inside * work.read / max(self.work.read, 1.0)


class SlowKernels:
    """Trials by operation, type, how its operands lie (a product of columns may take twenty times as long as one of
    rows) and how a convolution is grouped and unfolded."""

    def __init__(self) -> None:
        self._trials: dict[object, dict[Work, Trial]] = defaultdict(dict)

    def learn(self, call: Call, trial: Trial) -> None:
        """Quick ones count once a slow one was seen: that may have been a first run, which chooses a kernel."""
        known = self._trials[_kind(call)]
        slow = trial.seconds > MAX_SECONDS
        if slow and trial.seconds > MAX_SECONDS_EACH * trial.work.total:
            return
        if known or slow:
            known.setdefault(trial.work, trial)  # what is tried again was remembered, and took no time

    def seconds(self, call: Call, work: Work) -> float:
        """What its trial will take at least, by the quickest like it; 0: none like it was slow."""
        alike = self._alike(call, work)
        if not any(each.seconds > MAX_SECONDS for each in alike):
            return 0.0
        return min(each.seconds / each.work.total for each in alike) * work.total

    def inside(self, call: Call, work: Work) -> float | None:
        """Bytes that it takes inside, as by the one of those like it that is nearest in size; None: none is."""
        alike = self._alike(call, work)
        return min(alike, key=lambda each: each.work.times_as_large(work)).inside_of(work) if alike else None

    def _alike(self, call: Call, work: Work) -> list[Trial]:
        return [each for each in self._trials.get(_kind(call), {}).values() if each.work.is_like(work)]


KNOWN = SlowKernels()


def try_at(batch_sizes: tuple[int, int], one: Call, other: Call, size: int) -> Taken:
    """The call at another batch size than the two at which it was seen, run for real. Raises what it raises."""
    call, work = call_at(batch_sizes, one, other, size), work_at(batch_sizes, one, other, size)
    taken = measure_call(call)
    if MAX_SECONDS < taken.seconds <= FIRST_RUN * MAX_SECONDS:
        taken = taken._replace(seconds=seconds_once_compiled(call))
    KNOWN.learn(one, Trial(work, taken.seconds, taken.inside))
    return taken


@lru_cache(maxsize=1024)
def seconds_once_compiled(call: Call) -> float:
    """CPU time of a run after its first; raises what it raises."""
    return run_call(call).seconds


def is_slow(batch_sizes: tuple[int, int], one: Call, other: Call, size: int) -> bool:
    """Whether running it takes too long, by others like it."""
    return KNOWN.seconds(one, work_at(batch_sizes, one, other, size)) > MAX_SECONDS


def inside_as_others(batch_sizes: tuple[int, int], one: Call, other: Call, size: int) -> float:
    """Bytes that it takes inside by others like it; where none was tried, as if what it reads were copied, or its
    images unfolded."""
    work = work_at(batch_sizes, one, other, size)
    inside = KNOWN.inside(one, work)
    return (work.unfolded or work.read) if inside is None else inside


def work_at(batch_sizes: tuple[int, int], one: Call, other: Call, size: int) -> Work:
    pairs = (
        (one.flops, other.flops),
        (one.bound, other.bound),
        (one.read_bytes, other.read_bytes),
        (one.unfolded, other.unfolded),
    )
    return Work(*(max(affine(batch_sizes, pair).at(size), 0.0) for pair in pairs))


def _kind(call: Call) -> object:
    tensors = tuple((each.dtype, each.order) for each in call.arguments if isinstance(each, Shape))
    return call.operation, tensors, _grouping(call)


def _grouping(call: Call) -> tuple[bool, bool, bool]:
    """Of a convolution: whether in groups, whether of one channel each, for which libraries have other kernels, and
    whether there is something to unfold."""
    if call.operation not in WEIGHT_AND_GROUPS:
        return False, False, False
    weight, groups = (call.arguments[place] for place in WEIGHT_AND_GROUPS[call.operation])
    return groups > 1, groups > 1 and weight.sizes[1] == 1, call.unfolded > 0
