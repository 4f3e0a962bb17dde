"""What a kernel takes inside, over the batch size: tried where that is cheap, and in line with that beyond."""

from __future__ import annotations

import contextlib
import time
from math import inf

from probes.microtrain.kernel_memory.kernel_calls import UNKNOWN_FACTOR, Call, call_at, computes_much
from probes.microtrain.kernel_memory.kernel_trials import measure_call
from probes.microtrain.kernel_memory.slow_kernels import (
    MAX_SECONDS,
    inside_as_others,
    is_slow,
    seconds_once_compiled,
    try_at,
)
from probes.microtrain.traces.merging import affine

# Beyond these a call is tried at smaller batches: a tenth of a second on one core, and no burden on memory.
MAX_FLOPS = 4e9
MAX_BYTES = 256 * 2**20
# All of a large trace's trials in one precision; each call has two or three runs, unless others like it were slow, and
# one more where a larger batch hangs on it.
MAX_TRACE_SECONDS = 0.3
# One or two samples tell little of many: from the first to the second a recurrent layer's workspace grows by 4 kB, from
# the eighth on by 135 kB each. Of the trials that each call has, one is of so many where that is easy.
TELLING = 8
# Up to here a trial takes next to no time, whatever one at another size took for the profiler and for choosing kernels.
EASY_FLOPS, EASY_BYTES = 2e8, 2**25
COPYING_SIZES = (2, 4)  # copies are in proportion
FIRST_UNKNOWN = COPYING_SIZES[0]  # of which nobody knows whether it takes anything, is tried there first


class Budget:
    """What all trials of one trace may cost together, in seconds of CPU time."""

    def __init__(self, seconds: float = MAX_TRACE_SECONDS) -> None:
        self._left = seconds

    def allows(self, seconds: float) -> bool:
        return seconds <= min(self._left, MAX_SECONDS)

    def spend(self, seconds: float) -> None:
        self._left -= seconds


class Inside:
    """Bytes that a call takes inside, beyond its results, by the batch size. one, other: the call at two of them."""

    def __init__(self, batch_sizes: tuple[int, int], one: Call, other: Call) -> None:
        self._batch_sizes = batch_sizes
        self._one = one
        self._other = other
        self._bound = affine(batch_sizes, (one.bound, other.bound))
        self._flops = affine(batch_sizes, (one.flops, other.flops))
        self._seen: dict[int, int] = {}
        self._seconds_a_sample = inf  # in the quickest run
        self._fails = False
        self._is_slow = False  # at a size that it was wanted at

    def at(self, batch_size: int, budget: Budget) -> float:
        """Run for it where that is cheap, else in line with the largest sizes at which it is."""
        if batch_size not in self._seen:
            for size in self._sizes(batch_size):
                self._try(size, budget)
                if self._one.copies and self._seen.get(size) == 0:
                    return 0.0
                if self._one.unknown and self._seen.get(FIRST_UNKNOWN) == 0:
                    return 0.0
        return float(self._seen[batch_size]) if batch_size in self._seen else self._in_line(batch_size)

    def _sizes(self, batch_size: int) -> tuple[int, ...]:
        """At which it is tried for this one."""
        if self._one.copies:
            return COPYING_SIZES
        cheap = (*self._cheap_sizes(batch_size), batch_size)
        return (FIRST_UNKNOWN, *cheap) if self._one.unknown else cheap

    def _cheap_sizes(self, below: int) -> tuple[int, ...]:
        """A small one, which tells what others cost; and two that are as large as may be, where that is needed."""
        sizes = [2**power for power in range(below.bit_length()) if 2**power < below and self._is_small(2**power)]
        return tuple(sizes[:2]) if not self._seen else () if self._is_small(below) else tuple(sizes[-2:])

    def _is_small(self, size: int) -> bool:
        """Enough to be tried there. What takes nothing inside, as most of the unknown do, takes what it moves alone: so
        many bytes are no burden for the one trial that says so."""
        first = self._one.unknown and not self._seen and not computes_much(self._one.operation)
        bound = self._bound.at(size) / (UNKNOWN_FACTOR if first else 1)
        return self._flops.at(size) <= MAX_FLOPS and bound <= MAX_BYTES

    def _is_easy(self, size: int) -> bool:
        return self._flops.at(size) <= EASY_FLOPS and self._bound.at(size) <= EASY_BYTES

    def _would_tell(self) -> bool:
        slow = is_slow(self._batch_sizes, self._one, self._other, TELLING)
        return max(self._seen) < TELLING and self._is_easy(TELLING) and not slow

    def _try(self, size: int, budget: Budget) -> None:
        if size in self._seen or self._fails or not self._is_small(size):
            return
        if is_slow(self._batch_sizes, self._one, self._other, size):
            self._is_slow = True
            return
        if self._seen and not self._allows(size, budget):
            if self._would_tell():
                size = TELLING
            elif len(self._seen) >= 2:
                return
        begun = time.thread_time()
        try:
            taken = try_at(self._batch_sizes, self._one, self._other, size)
            self._seen[size] = taken.inside
            self._seconds_a_sample = min(taken.seconds / size, self._seconds_a_sample)
        except Exception:  # noqa: BLE001 - zeros are no fit input for every operation, nor are its lists at any size
            self._fails = True
        budget.spend(time.thread_time() - begun)

    def _allows(self, size: int, budget: Budget) -> bool:
        """Whether it may be run there, by what a sample took. Where that is too long, the largest size that ran is run
        once more: what a library does when it first meets a shape may take longer than the kernel itself."""
        if self._is_easy(size):
            return budget.allows(0.0)
        if budget.allows(0.0) and not budget.allows(self._seconds_a_sample * size):
            begun, largest = time.thread_time(), max(self._seen)
            with contextlib.suppress(Exception):  # it ran before; what it does now is no fault of the model's
                seconds = seconds_once_compiled(call_at(self._batch_sizes, self._one, self._other, largest))
                self._seconds_a_sample = min(seconds / largest, self._seconds_a_sample)
            budget.spend(time.thread_time() - begun)
        return budget.allows(self._seconds_a_sample * size)

    def bound_at(self, batch_size: int) -> float:
        """Bytes that it takes at most, as far as is known. What its trials took counts, and what a sample more took
        from the smallest to the largest of them: what a kernel makes inside need not show in its arguments."""
        if not self._seen:
            return self._bound.at(batch_size)
        least, most = min(self._seen), max(self._seen)
        a_sample = (self._seen[most] - self._seen[least]) / max(most - least, 1)
        beyond = self._seen[most] + a_sample * (batch_size - most)
        return max(self._bound.at(batch_size), beyond, *self._seen.values())

    def kept(self) -> int:
        """Bytes that stay until the step ends: autocast's copies of weights, whatever the batch."""
        if not self._one.autocast or not self._is_small(1):
            return 0
        try:
            return measure_call(call_at(self._batch_sizes, self._one, self._other, 1)).kept
        except Exception:  # noqa: BLE001 - as in _try
            return 0

    def _in_line(self, batch_size: int) -> float:
        """With two points; with fewer by simpler rules."""
        sizes = sorted(self._seen, key=lambda size: abs(size - batch_size))[:2]
        if len(sizes) < 2:
            return self._by_rule(batch_size)
        line = affine((sizes[0], sizes[1]), (self._seen[sizes[0]], self._seen[sizes[1]]))
        # Where there is a jump between the two, the line soon is above what any kernel was seen to take.
        return min(max(line.at(batch_size), 0.0), self.bound_at(batch_size))

    def _by_rule(self, batch_size: int) -> float:
        """What is read counts as copied by a library, the nearest of all simple rules; a whole layer makes what its
        shapes say. Of what nobody knows whether it takes anything its one trial tells, in proportion; where it took
        nothing, and where there was none, it takes nothing."""
        known = max(self._seen.values(), default=0)
        if self._one.copies or (self._one.unknown and not known and (self._seen or not self._is_slow)):
            return 0.0
        if self._one.unknown and known:
            return known * self._bound.at(batch_size) / self._bound.at(min(self._seen))
        if self._one.made:
            return max(affine(self._batch_sizes, (self._one.made, self._other.made)).at(batch_size), known)
        if self._is_slow:
            return inside_as_others(self._batch_sizes, self._one, self._other, batch_size)
        return max(affine(self._batch_sizes, (self._one.read_bytes, self._other.read_bytes)).at(batch_size), known)
