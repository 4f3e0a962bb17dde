"""Runs jobs of the micro-training: measurements one at a time, each in a fresh process; traces in a warm one."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

from app.errors import LabError
from app.lab.child import PROGRAM, Child, OnEvent
from app.lab.slot import Slot, Ticket
from app.lab.temporary_folder import remove_left_folders
from app.lab.tracer import Tracer
from app.settings import Settings

# How old what a driver says of a device's use may be: of the second before (nvmlDeviceGetUtilizationRates), in a survey
# that is a second old.
UTILIZATION_SECONDS = 2.0
# As Child.run.
RunOn: TypeAlias = Callable[[Child, dict[str, Any], float, OnEvent | None], Awaitable[dict[str, Any]]]


class Lab:
    """Every process it starts is ended by `close`, which takes no longer than 3.5 seconds (app.lab.child).

    program: what is started; it speaks docs/protocol.md.
    """

    def __init__(self, settings: Settings, program: Sequence[str] = PROGRAM) -> None:
        self._program = program
        self._grace_seconds = settings.grace_seconds
        self._slot = Slot(settings.queue_length)
        self._living: set[Child] = set()
        self._tracer = Tracer(
            settings.trace_idle_seconds, self._living, program, self._check_open, lambda: self.measuring
        )
        self._measured_at = -math.inf
        self._swept = False  # what killed processes left; a service looks again and again (app.upkeep)
        self._closed = False

    def check_room(self, otherwise: str = "") -> None:
        """Raises LabBusy when the queue for measurements is full. otherwise: what else could be done (app.errors)."""
        self._slot.check_room(otherwise)

    def reserve(self, expected_seconds: float, on_preempt: Callable[[], object] | None = None) -> Ticket:
        """A place in the queue for a measurement. Raises LabBusy when it is full.

        on_preempt: for work that nobody waits for; called when somebody's measurement needs the slot.
        """
        return self._slot.reserve(expected_seconds, on_preempt)

    def release(self, ticket: Ticket) -> None:
        """Hand back a place that will not be used."""
        self._slot.release(ticket)

    @property
    def measuring(self) -> bool:
        """A measurement of this process runs."""
        return any(ticket.running for ticket in self._slot.tickets)

    @property
    def measured_lately(self) -> bool:
        """Whether what a device is found busy with may be a measurement of this process."""
        return self.measuring or time.monotonic() - self._measured_at < UTILIZATION_SECONDS

    @property
    def waiting(self) -> int:
        """How many measurements of this process wait."""
        return sum(not ticket.running for ticket in self._slot.tickets)

    @property
    def tracer_is_warm(self) -> bool:
        return self._tracer.warm

    async def end_tracer(self) -> None:
        """End the process that is kept for traces; the next question starts another."""
        await self._tracer.end()

    async def ready(self) -> dict[str, Any]:
        """What a micro-training process says of torch and its devices. The process is kept for traces.
        Raises LabError."""
        self._check_open()
        return await self._tracer.ready()

    async def prepare(self, rest_seconds: float | None = None) -> None:
        """Let the process that traces load what the first config needs, so that nobody waits for it. rest_seconds: end
        it after this long without work, where the settings say longer. Raises LabError."""
        if rest_seconds is not None:
            self._tracer.rest_at_most(rest_seconds)
        await self._tracer.run({"kind": "prepare"})

    async def run(
        self,
        job: dict[str, Any],
        on_event: OnEvent | None = None,
        *,
        seconds: float = 30.0,
        ticket: Ticket | None = None,
        options: Sequence[str] = (),
    ) -> dict[str, Any]:
        """The result of one job. `seconds` is what a measurement should take; it is ended when it takes that much
        and the grace of the settings. options: as of `session`. Who is cancelled while the process is ending, with the
        result there, gets it all the same. Raises LabError and LabBusy."""
        if job["kind"] in ("trace", "widen"):
            self._check_open()
            return await self._tracer.run(job)

        async def make_job() -> dict[str, Any]:
            return job

        return await self.run_at_turn(make_job, on_event, seconds=seconds, ticket=ticket, options=options)

    async def run_at_turn(
        self,
        make_job: Callable[[], Awaitable[dict[str, Any]]],
        on_event: OnEvent | None = None,
        *,
        seconds: float,
        ticket: Ticket | None = None,
        options: Sequence[str] = (),
        run: RunOn | None = None,
    ) -> dict[str, Any]:
        """As `run`, a measurement that is made up once the machine's slot is held: what the machine is then, and what
        is known of it, may be other than when its turn was asked for. run: how the process is asked; Child.run where
        none is given."""
        result: dict[str, Any] | None = None
        try:
            async with self.session(ticket or self.reserve(seconds), options) as child:
                result = await (run or Child.run)(child, await make_job(), self.deadline(seconds), on_event)
        except asyncio.CancelledError:
            if result is None:
                raise
        assert result is not None
        return result

    @contextlib.asynccontextmanager
    async def session(self, ticket: Ticket, options: Sequence[str] = ()) -> AsyncIterator[Child]:
        """A fresh process with the machine's slot held, for several jobs in a row. options: of its command line
        (docs/protocol.md). Raises LabError."""
        async with self._slot.hold(ticket):
            if not self._swept:
                self._swept = True
                await asyncio.to_thread(remove_left_folders)
            try:
                async with self.another({}, options) as child:
                    yield child
            finally:
                self._measured_at = time.monotonic()

    @contextlib.asynccontextmanager
    async def another(self, environment: Mapping[str, str], options: Sequence[str] = ()) -> AsyncIterator[Child]:
        """One more fresh process, with these variables; to measure in, for whoever holds the machine's slot. Raises
        LabError."""
        self._check_open()
        child = await Child.start(self._living, (*self._program, *options), environment=environment)
        try:
            self._check_open()  # it may have been closed meanwhile
            yield child
        except LabError:
            self._check_open()  # what ended the process then is nothing that anybody could mend
            raise
        finally:
            await child.end()

    def deadline(self, seconds: float) -> float:
        """When a job that should take `seconds` is ended."""
        return seconds + self._grace_seconds

    async def close(self) -> None:
        """End every process. Jobs that run get a LabError."""
        self._closed = True
        ending = [child.end() for child in self._living]
        await asyncio.gather(self._tracer.close(), *ending, return_exceptions=True)

    def kill(self) -> None:
        """KILL every process at once, from any thread; for when `close` itself hangs."""
        for child in tuple(self._living):
            child.kill()

    def _check_open(self) -> None:
        if self._closed:
            raise LabError("ended", "crosspoint is shutting down; nothing more is measured.")
