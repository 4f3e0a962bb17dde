"""NVIDIA's facts for who asks every second, without a process for each answer.

What does not change is read in full from time to time; what does comes from a process that goes on (nvml_watch). Who
asks now and then gets a full reading each time, and nothing is left running.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import replace

from probes.gpu.nvml_process import NvidiaReading, read_nvidia
from probes.gpu.nvml_watch import Watched
from probes.hardware import Outcome
from probes.live import STALE_SECONDS, Watch, update_cards

# A driver that was replaced, a mode that was switched: whatever the watch does not see shows after this long.
FULL_SECONDS = 60.0
# A reading that failed is tried again sooner; beside it the survey goes on.
RETRY_SECONDS = 15.0
# Two questions closer than this are the beginning of many.
OFTEN_SECONDS = 5.0

Read = Callable[[float], NvidiaReading]


class KeptNvidia:
    """`read` may be called by one thread at a time, `start`, `latest` and `stop` (those of a Watch) by any."""

    def __init__(self, watch: Watch, read: Read = read_nvidia, clock: Callable[[], float] = time.monotonic) -> None:
        self._watch = watch
        self._read_full = read
        self._clock = clock
        self._full: NvidiaReading | None = None
        self._full_at = self._asked_at = -float("inf")
        self._started_at: float | None = None
        self._explained: frozenset[str] | None = None  # the watch's cards when the last full reading was taken
        self._thread: threading.Thread | None = None

    def read(self, deadline_seconds: float) -> NvidiaReading:
        """Waits for the driver when nothing newer than a moment ago is known; else answers at once."""
        often = self._clock() - self._asked_at < OFTEN_SECONDS
        self._asked_at = self._clock()
        if not often or self._full is None:
            return self._take(deadline_seconds)
        self.start()
        watched = self._watch.latest()
        if watched.age_seconds is None and self._full.outcome is Outcome.OK and self._has_just_started():
            return self._take(deadline_seconds)
        if self._is_due(watched):
            self._take_aside(deadline_seconds)
        return merge_watched(self._full, watched)

    def start(self) -> None:
        if self._started_at is None:
            self._started_at = self._clock()
        self._watch.start()

    def latest(self) -> Watched:
        return self._watch.latest()

    def stop(self) -> None:
        """End the process that goes on; the next question may start it again."""
        self._watch.stop()
        self._started_at = None
        self._asked_at = -float("inf")

    def _has_just_started(self) -> bool:
        return self._started_at is not None and self._clock() - self._started_at < STALE_SECONDS

    def _is_due(self, watched: Watched) -> bool:
        full = self._full
        if full is None or (self._thread is not None and self._thread.is_alive()):
            return False
        age = self._clock() - self._full_at
        told, known = frozenset(watched.cards), frozenset(card.id for card in full.accelerators)
        others = watched.age_seconds is not None and told not in (self._explained, known)
        return others or age > (FULL_SECONDS if full.outcome is Outcome.OK else RETRY_SECONDS)

    def _take(self, deadline_seconds: float) -> NvidiaReading:
        watched = self._watch.latest()
        explained = None if watched.age_seconds is None else frozenset(watched.cards)
        reading = self._read_full(deadline_seconds)
        self._full, self._full_at, self._explained = reading, self._clock(), explained
        return reading

    def _take_aside(self, deadline_seconds: float) -> None:
        """A driver that hangs holds up nobody who asks."""
        self._thread = threading.Thread(target=self._take, args=(deadline_seconds,), name="nvidia", daemon=True)
        self._thread.start()


def merge_watched(full: NvidiaReading, watched: Watched) -> NvidiaReading:
    """The full reading with what changed since. Where NVML does not answer any more, what changes is unknown; a card
    that came is not listed before it was read in full, for a card without a name would be another machine."""
    if full.outcome is not Outcome.OK:
        return full
    known = {card.id for card in full.accelerators}
    cards = tuple(card for card in update_cards(full.accelerators, watched, STALE_SECONDS)[0] if card.id in known)
    if watched.reason is not None and (watched.age_seconds is None or watched.age_seconds > STALE_SECONDS):
        return replace(full, outcome=Outcome.TIMEOUT, reason=watched.reason, accelerators=cards)
    return replace(full, accelerators=cards)
