"""The survey for whoever measures, once the machine's slot is held: what others held before is free by then."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from app.advisor.explanations.busy_device import without_utilization
from app.lab import Ticket
from probes.hardware import Survey

if TYPE_CHECKING:
    from app.service import Crosspoint

# Called with the machine as it is once a measurement's turn has come; what it raises ends that.
CheckAtTurn = Callable[[Survey], Awaitable[None]]


class SurveyAtTurn:
    """Made just before the slot is asked for with this ticket; `survey` is for when it is held. before: the survey that
    was read when the question came.

    After another measurement the machine is read anew, and how busy cards were is not known: it may have been that one.
    Where there was none the last reading will do, if it is half a second old at most. It goes on while the measuring
    process starts, before that takes memory, so that nobody waits for it.
    """

    def __init__(self, crosspoint: Crosspoint, ticket: Ticket, before: Survey) -> None:
        self._crosspoint = crosspoint
        self._before = before
        self._after_another = crosspoint.lab.measured_lately
        self._reading: asyncio.Task[Survey] | None = None
        self._on_wait, self._on_start = ticket.on_wait, ticket.on_start
        ticket.on_wait, ticket.on_start = self._note_waiting, self._begin_reading

    async def survey(self) -> Survey:
        """The one from before where none could be taken, or it tells of another machine: by that one the question's
        plans and profile were chosen."""
        return await self._read(self._before.fingerprint)

    async def now(self) -> Survey:
        """Of another machine, too: for a calibration, which is of whatever this machine is while it is measured."""
        return await self._read(None)

    async def _read(self, fingerprint: str | None) -> Survey:
        assert self._reading is not None, "the slot is not held"
        now = await self._reading
        is_good = now.fingerprint and fingerprint in (None, now.fingerprint)
        found = now if is_good else self._before
        return without_utilization(found) if self._after_another else found

    def _note_waiting(self) -> None:
        self._after_another = True
        if self._on_wait is not None:
            self._on_wait()

    def _begin_reading(self) -> None:
        self._reading = asyncio.create_task(self._crosspoint.survey(fresh=self._after_another))
        if self._on_start is not None:
            self._on_start()
