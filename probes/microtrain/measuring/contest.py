"""Times several things against each other: in turns, in shuffled order, so that a drifting machine favours none.

Knows nothing of torch; the clock is a parameter, so that its decisions can be tested without waiting.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from probes.figures import format_seconds
from probes.microtrain.measuring.entry import Entry
from probes.microtrain.timing import MIN_SAMPLES, relative_error

Clock = Callable[[], float]

TARGET_ROUNDS = 15  # samples an entry should get in the time there is
TARGET_ROUNDS_OF_PROCESSES = 30  # where it goes through several processes
MIN_BLOCK_SECONDS = 0.002  # ten thousand ticks of the clock; a scheduler's turn is of this order
MAX_BLOCK_SECONDS = 0.2  # longer blocks average nothing more away, and turns would come too seldom
# Longer than the best by this much in its luckiest block: more precision would change no decision.
HOPELESS = 1.3
# Longer than the best by this much: it has what time the others leave.
SLOW = 3.0
PRECISE_SAMPLES = 12
PRECISE_ERROR = 0.005
WARM_UP_SHARE = 0.2  # of the time there is, at most
WARM_UP_SECONDS = 0.01  # fills caches and queues, and gives a first estimate of a short execution
RETIRING_SAMPLES = 8  # the first ones of a process are not settled yet
RETIRING_PROCESSES = 4  # of what goes through several: one heap tells of one; but not for more than twice the samples
FEW_SAMPLES = 8  # fewer are worth more time than there was to be
PIECES = 4  # of a block; between them the clock is looked at
SAMPLES_OF_PROCESS = 3  # before an entry goes on in another
LONG_SECONDS = 0.5  # an execution that hardly notices that its threads had slept
NOT_BEGUN = "The time was over before its first step. More time, fewer plans or fewer batch sizes would do."
LEAD_IN_SHARE = 0.1  # of a block, run untimed before it: caches and threads belong to whoever ran last


class OutOfTime(Exception):
    """Nothing of this entry could be timed; the message says why."""


@dataclass
class Contest:
    """Runs entries until `deadline` (on `clock`), or until all are as precise as any decision needs.

    enough: from then on only those play that have few samples yet; None: all play until the deadline.
    expect: seconds that an entry's first execution should take, judged by the others; None: no idea.
    least_block_seconds: of a block, however many turns that leaves. lead_in_seconds: run untimed before it at least.
    on_turn is told after every block; on_error when an entry fails, to free what it held.
    """

    entries: Sequence[Entry]
    deadline: float
    clock: Clock = time.perf_counter
    enough: float | None = None
    least_block_seconds: float = MIN_BLOCK_SECONDS
    lead_in_seconds: float = 0.0
    shuffle: random.Random = field(default_factory=lambda: random.Random(0))
    expect: Callable[[Entry], float | None] = lambda entry: None
    on_turn: Callable[[], object] = lambda: None
    on_error: Callable[[Entry], object] = lambda entry: None
    current: Entry | None = None  # what runs at this moment
    rounds: int = 0

    def run(self) -> None:
        first = [entry for entry in self.entries if not entry.last]
        last = [entry for entry in self.entries if entry.last]
        self.warm_up(first)
        if last:
            self._play(lambda: all(len(entry.samples) >= FEW_SAMPLES for entry in first if entry.live))
            self.warm_up(last)
        self._play(lambda: False)

    def _play(self, is_enough: Callable[[], bool]) -> None:
        block_seconds = self.choose_block_seconds()
        while not is_enough() and self._play_round(block_seconds):
            self.rounds += 1
            self._retire_hopeless()

    def warm_up(self, entries: Sequence[Entry]) -> None:
        """Two executions of every entry, of short ones some more, in their order.

        What cannot be done in time fails with OutOfTime; but if there is time for nothing, one execution of the first.
        """
        live = [entry for entry in entries if entry.live]
        for waiting, entry in zip(range(len(live), 0, -1), live, strict=True):
            if not entry.live:  # any more: another's failure was its end
                continue
            expected = self.expect(entry) or 0.0
            left = self.deadline - self.clock()
            if expected >= left and any(other.first_seconds is not None for other in self.entries):
                entry.error = OutOfTime(_why_not_begun(expected, left))
                continue
            share = min(WARM_UP_SECONDS, WARM_UP_SHARE * left / waiting)
            self._attempt(entry, partial(self._warm_up_entry, entry, share))

    def _warm_up_entry(self, entry: Entry, seconds: float) -> None:
        begun = self.clock()
        with entry.watch():
            entry.first_seconds = self._time(entry, 1)
        if entry.first_seconds - entry.excess < self.deadline - self.clock():
            with entry.watch():
                entry.warm_seconds = self._time(entry, 1)
            more = int(seconds / max(entry.warm_seconds, 1e-9))
            if more > 0:
                entry.warm_seconds = self._time(entry, more) / more
        self._read_pace(entry)
        entry.rest()
        entry.to_begin_seconds = entry.begun_ahead_seconds + self.clock() - begun
        entry.begun_at_seconds = entry.used_seconds

    def choose_block_seconds(self) -> float:
        """So that every entry can have its rounds; a long execution is a block of its own."""
        live = sum(entry.live for entry in self.entries)
        renewed = any(entry.renew is not None for entry in self.entries)
        rounds = TARGET_ROUNDS_OF_PROCESSES if renewed else TARGET_ROUNDS
        share = (self.deadline - self.clock()) / (max(1, live) * rounds)
        return min(MAX_BLOCK_SECONDS, max(self.least_block_seconds, share))

    def _play_round(self, block_seconds: float) -> bool:
        """One block of every entry whose turn it is. False when there is nothing left to do."""
        if all(is_precise(entry) for entry in self.entries if entry.live):
            return False
        playing = self._who_plays()
        self.shuffle.shuffle(playing)
        played = [
            self._attempt(entry, partial(self._play_block, entry, block_seconds))
            for entry in playing
            if entry.live  # still: another's failure may have been its end
        ]
        return any(played)

    def _who_plays(self) -> list[Entry]:
        """Every live entry, but for those that have had twice their share of time and samples enough. When it is enough
        for the others, those with few samples of the calm machine, but for the slow ones."""
        live = [entry for entry in self.entries if entry.live and entry.estimate is not None]
        if self.enough is not None and self.clock() >= self.enough:
            few = [entry for entry in live if entry.calm.count(entry.readings) < FEW_SAMPLES]
            return [entry for entry in few if not self._is_slow(entry)]
        fair = sum(entry.used_seconds for entry in live) / max(1, len(live))
        return [entry for entry in live if len(entry.samples) < MIN_SAMPLES or entry.used_seconds <= 2 * fair]

    def _is_slow(self, entry: Entry) -> bool:
        """It has samples, by which it takes far longer than its group's best."""
        if entry.group is None or not entry.samples:
            return False
        rivals = [other for other in self.entries if other.group == entry.group and other.samples]
        return entry.least_seconds > SLOW * min(other.most_seconds for other in rivals)

    def _play_block(self, entry: Entry, block_seconds: float) -> bool:
        """One sample, if it can be had before the deadline."""
        wanted = max(1, int(block_seconds / max(entry.best or 0.0, 1e-9)))
        lead_in = self._lead_in(entry, wanted) if wanted > 2 or _wakes(entry) else 0
        left = self.deadline - self.clock()
        needed = min(wanted + lead_in, 2) * (entry.estimate or 0.0)
        if left <= needed or (left < block_seconds / 2 and entry.samples):
            return False  # a stub of a block would be noisier than the others
        if self._wants_another_process(entry, left) and not self._renew(entry):
            return False
        if lead_in:
            self._time(entry, lead_in)
        seconds, done, pieces = self._time_pieces(entry, wanted, min(2 * block_seconds, self.deadline - self.clock()))
        # Not what was read after the lead-in: threads of whoever ran last still wait for work, on a core of their own.
        reading = entry.calm.learn(self._read_pace(entry)[-pieces:])
        entry.samples.append(seconds / done)
        entry.readings.append(reading)
        entry.processes.append(entry.process)
        entry.executions += done
        entry.rest()
        return True

    def _lead_in(self, entry: Entry, wanted: int) -> int:
        """Executions: a share of the block, and as many as take the seconds that there are for it."""
        return max(int(wanted * LEAD_IN_SHARE) + 1, int(self.lead_in_seconds / max(entry.best or 0.0, 1e-9)))

    def _wants_another_process(self, entry: Entry, left: float) -> bool:
        """It has had samples enough in this one, and run in it for as long as beginning took; and there is time for it
        to do so in the next, as there is for all others."""
        if entry.renew is None or entry.processes.count(entry.process) < SAMPLES_OF_PROCESS:
            return False
        block = entry.used_seconds / max(1, len(entry.samples))
        worth = max(entry.to_begin_seconds, SAMPLES_OF_PROCESS * block)
        used = entry.used_seconds - entry.begun_at_seconds
        live = sum(other.live for other in self.entries)
        return used >= entry.to_begin_seconds and left / max(1, live) >= entry.to_begin_seconds + worth

    def _renew(self, entry: Entry) -> bool:
        """Whether it could go on; where it could not, what it has stands."""
        assert entry.renew is not None
        begun = self.clock()
        self.current = entry
        try:
            entry.renew()
        except Exception:  # noqa: BLE001 - whatever it dies of, it ran before
            entry.retired = True
            return False
        self.current = None
        entry.process += 1
        entry.to_begin_seconds, entry.begun_at_seconds = self.clock() - begun, entry.used_seconds
        return True

    def _time_pieces(self, entry: Entry, wanted: int, most_seconds: float) -> tuple[float, int, int]:
        """Seconds, executions and pieces of a block; it ends early where the machine has grown slow meanwhile."""
        seconds, done, pieces = 0.0, 0, 0
        while done < wanted and (done == 0 or seconds < most_seconds):
            piece = min(wanted - done, -(-wanted // PIECES))
            seconds += self._time(entry, piece)
            done += piece
            pieces += 1
        return seconds, done, pieces

    def _time(self, entry: Entry, executions: int) -> float:
        """Seconds of that many executions."""
        self.current = entry
        with entry.setting():
            begun = self.clock()
            own = entry.run(executions)
            seconds = self.clock() - begun if own is None else own
        entry.used_seconds += seconds
        self.current = None
        return seconds

    def _read_pace(self, entry: Entry) -> Sequence[float]:
        with entry.setting():
            return entry.read_pace()

    def _attempt(self, entry: Entry, action: Callable[[], object]) -> bool:
        """Whether the action did something. An entry that fails costs only itself, and what it has stands: an execution
        that ran after the first can run."""
        failed = False
        try:
            done = action() is not False
        except Exception as error:  # noqa: BLE001 - whatever an entry dies of is its own answer
            if entry.samples or entry.warm_seconds is not None:
                entry.retired = True
            else:
                entry.error = error.with_traceback(None)  # its frames hold on to tensors
            done = failed = True
        self.current = None
        if failed:
            self.on_error(entry)
        self.on_turn()
        return done

    def _retire_hopeless(self) -> None:
        """Give no more time to what cannot be its group's best, whatever slow cores did to either: who is given up does
        not play again when these are calm."""
        for group in {entry.group for entry in self.entries if entry.group is not None}:
            rivals = [entry for entry in self.entries if entry.group == group and entry.live and _has_told(entry)]
            best = min((entry.most_seconds for entry in rivals), default=0.0)
            for entry in rivals:
                entry.retired = entry.least_seconds > HOPELESS * best


def _has_told(entry: Entry) -> bool:
    """Enough to be given up for."""
    samples = len(entry.samples)
    through = entry.renew is None or entry.process + 1 >= RETIRING_PROCESSES or samples >= 2 * RETIRING_SAMPLES
    return samples >= RETIRING_SAMPLES and through


def is_precise(entry: Entry) -> bool:
    """More samples would change no decision."""
    tail, steady = entry.settled_samples()
    return steady and len(tail) >= PRECISE_SAMPLES and relative_error(tail) < PRECISE_ERROR


def _wakes(entry: Entry) -> bool:
    """Whether a block of one or two executions wants one before it: on two threads they took 12 % longer without
    (docs/decisions/0005). A long one is hardly the longer for it."""
    return entry.rested and (entry.estimate or 0.0) < LONG_SECONDS


def _why_not_begun(expected: float, left: float) -> str:
    if left <= 0 or expected <= 0:
        return NOT_BEGUN
    return (
        f"One step was expected to take {format_seconds(expected)}, with {format_seconds(left)} left. "
        "More time, fewer plans or a smaller batch would do."
    )
