"""What changes from second to second, read once for everybody who listens; while nobody does, nothing runs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from app.errors import FeedRefused
from app.settings import Settings
from app.surveyor import Surveyor, in_daemon_thread

if TYPE_CHECKING:
    from probes.live import Live, LiveReader

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 1.0
# A page, a few terminals and a collector; each holds a connection.
MAX_LISTENERS = 32
# Longer than collectors wait between two scrapes; Prometheus' own default is a minute.
KEEP_SECONDS = 90.0
# How often cards that the survey does not know may set off another survey.
SURVEY_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Told:
    """number: grows by one with each reading, over the life of the feed."""

    number: int
    live: Live
    text: str


class LiveFeed:
    """For one event loop. Listeners that are slow miss readings; every reading is complete."""

    def __init__(self, surveyor: Surveyor, settings: Settings) -> None:
        self._surveyor = surveyor
        self._is_here = settings.sysroot == Path("/")
        self._told: Told | None = None
        self._number = 0
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closed = self._broken = False
        self._kept: asyncio.TimerHandle | None = None
        self._users = 0
        self.listeners = 0

    @contextlib.contextmanager
    def listen(self) -> Iterator[None]:
        """Held for as long as somebody listens. Raises FeedRefused."""
        if not self._is_here:
            raise FeedRefused("captured", "A captured machine does not change: leave sysroot out to watch this one.")
        if self._closed or self.listeners >= MAX_LISTENERS:
            raise FeedRefused("too-many-listeners", f"{MAX_LISTENERS} listen already. Try again when one has left.")
        self.listeners += 1
        self._users += 1
        self._start()
        try:
            yield
        finally:
            self.listeners -= 1
            self._let_go()

    def keep(self) -> None:
        """Go on reading for KEEP_SECONDS, for who asks now and then."""
        if self._closed or not self._is_here:
            return
        if self._kept is None:
            self._users += 1
        else:
            self._kept.cancel()
        self._start()
        self._kept = asyncio.get_running_loop().call_later(KEEP_SECONDS, self._stop_keeping)

    @property
    def latest(self) -> Live | None:
        """The last reading; None while nobody has them taken."""
        return self._told.live if self._told is not None else None

    def _stop_keeping(self) -> None:
        self._kept = None
        self._let_go()

    def _start(self) -> None:
        if self._task is None:
            self._broken = False
            self._task = asyncio.create_task(self._run())
            self._task.add_done_callback(self._report)

    def _let_go(self) -> None:
        self._users -= 1
        if not self._users:
            self._end()

    async def next(self, after: int) -> Told | None:
        """The newest reading beyond number `after`, as soon as there is one; None when it has ended."""
        while not (self._closed or self._broken):
            if self._told is not None and self._told.number > after:
                return self._told
            await self._changed.wait()
        return None

    def close(self) -> None:
        """Every listener is told that this was all."""
        self._closed = True
        if self._kept is not None:
            self._kept.cancel()
        self._end()
        self._wake()

    def _end(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._task = self._told = None

    def _report(self, task: asyncio.Task[None]) -> None:
        """A fault of ours ends the streams, and nothing else."""
        if not task.cancelled() and task.exception() is not None:
            log.error("What changes can no longer be read.", exc_info=task.exception())
            self._broken, self._task = True, None
            self._wake()

    async def _run(self) -> None:
        """A reading each second."""
        with self._surveyor.awake():
            reader = await in_daemon_thread(self._start_reader)
            surveyed = asyncio.get_running_loop().time()
            survey = await self._surveyor.read()
            while True:
                started = asyncio.get_running_loop().time()
                known = survey.survey.accelerators
                live = await in_daemon_thread(lambda known=known: reader.read(known))  # type: ignore[misc]
                self._tell(live)
                if live.outdated and started - surveyed > SURVEY_SECONDS:
                    surveyed, survey = started, await self._surveyor.read(fresh=True)
                await asyncio.sleep(max(0.0, started + INTERVAL_SECONDS - asyncio.get_running_loop().time()))

    def _start_reader(self) -> LiveReader:
        from probes.live import LiveReader  # late, as everything that a start does not need

        reader = LiveReader(interval_seconds=INTERVAL_SECONDS, watch=self._surveyor.nvidia)
        reader.start()
        return reader

    def _tell(self, live: Live) -> None:
        self._number += 1
        text = json.dumps(live.to_json(), ensure_ascii=False, separators=(",", ":"))
        self._told = Told(self._number, live, text)
        self._wake()

    def _wake(self) -> None:
        """Whoever waits looks again; whoever comes later waits for the next time."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
