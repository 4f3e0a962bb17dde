"""What a contest times: one thing, with what it took so far and what that says of a calm machine."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from statistics import median

from probes.microtrain.quiet.calm import Calm, Slowdown
from probes.microtrain.timing import MIN_SAMPLES, steady_tail

Setting = Callable[[], contextlib.AbstractContextManager[object]]


@dataclass
class Entry:
    """One thing to be timed.

    run: executes it that often and returns when all is done (devices synchronised); what keeps its own time gives the
    seconds. group: entries of one group answer the same question and are compared; None: this one is compared with
    nothing. setting: entered around every run. watch: entered around each of the two first executions, off the clock
    of any sample. rested: its threads have slept when its turn comes. expected: seconds of an execution, as foretold.
    excess: seconds that its very first execution may take beyond those after it. rest: waits until it leaves the cores
    to whoever has the next turn. last: is begun when the others have samples enough, for it is expected to be slow.
    read_pace: readings of the cores' pace since it was last asked, within the setting; calm: shared by entries whose
    readings can be compared. renew: goes on in another process, which is as warm; None: it stays in the one it is in.
    begun_ahead_seconds: of beginning in its first process, what was done before the contest.
    """

    name: Hashable
    run: Callable[[int], float | None]
    group: Hashable = None
    setting: Setting = contextlib.nullcontext
    watch: Setting = contextlib.nullcontext
    rested: bool = False
    expected: float | None = None
    excess: float = 0.0
    rest: Callable[[], object] = lambda: None
    last: bool = False
    read_pace: Callable[[], Sequence[float]] = tuple
    calm: Calm = field(default_factory=Calm)
    renew: Callable[[], object] | None = None
    begun_ahead_seconds: float = 0.0
    first_seconds: float | None = None  # the very first execution
    warm_seconds: float | None = None  # the second
    samples: list[float] = field(default_factory=list)  # seconds an execution, one a block, in time order
    readings: list[float | None] = field(default_factory=list)  # of the pace, one a sample
    processes: list[int] = field(default_factory=list)  # of each sample, in which one it was taken
    process: int = 0  # in which it runs now
    to_begin_seconds: float = 0.0  # what beginning in a process took
    begun_at_seconds: float = 0.0  # used by then
    executions: int = 0  # in samples
    used_seconds: float = 0.0
    error: Exception | None = None
    retired: bool = False

    @property
    def live(self) -> bool:
        return self.error is None and not self.retired

    def give_up(self, reason: Exception) -> None:
        """From now on: what it has stands, and where it has nothing, the reason does."""
        if self.first_seconds is None:
            self.error = reason
        else:
            self.retired = True

    @property
    def estimate(self) -> float | None:
        """Seconds of one execution, as far as is known by now."""
        if self.samples:
            return median(self.samples[-5:])
        return self.warm_seconds if self.warm_seconds is not None else self.first_seconds

    @property
    def best(self) -> float | None:
        """Seconds of one execution when the machine let it be: how many make a block must not follow the noise."""
        return min(self.samples) if self.samples else self.estimate

    @property
    def calm_samples(self) -> list[float]:
        """What the calm machine takes: of the calm samples, or where none is reckoned from the others (Calm)."""
        return self.calm.choose(self.samples, self.readings)

    @property
    def least_seconds(self) -> float:
        """That an execution may take on the calm machine, by its luckiest sample. How much it suffered on slow cores,
        where it met no others, is not known; nor is a lone calm one believed for it, whose cores may have turned calm
        as it ended. It has to have samples."""
        is_lone = self.calm.count(self.readings) == 1 < len(self.samples)
        if self._met_calm_cores and not is_lone:
            return min(self.calm_samples)
        return self.calm.least(self.samples, self.readings)

    @property
    def most_seconds(self) -> float:
        """That it takes on the calm machine, as far as its samples tell: where it met slow cores alone, no more than
        there. It has to have samples."""
        return median(self.calm_samples if self._met_calm_cores else self.samples)

    @property
    def is_reckoned(self) -> bool:
        """Its samples met slow cores alone."""
        return bool(self.samples) and not self._met_calm_cores

    @property
    def _met_calm_cores(self) -> bool:
        return self.calm.met(self.samples, self.readings)

    @property
    def slowdown(self) -> Slowdown | None:
        """How often the cores were slow, and what it did; None where it is not known."""
        return self.calm.slowdown(self.samples, self.readings) if self.samples else None

    def settled_samples(self) -> tuple[list[float], bool]:
        """What to report, and whether it had settled; the two first executions where there was no time for more."""
        if self.samples:
            found = self.calm.by_process(self.samples, self.readings, self.processes)
            if len(found) >= MIN_SAMPLES:
                return found, True
            return steady_tail(self.calm_samples)
        seconds = self.estimate
        return ([] if seconds is None else [seconds]), False
