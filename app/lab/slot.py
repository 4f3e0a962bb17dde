"""The machine's one measurement slot: a short queue in this process, then the lock between processes."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Callable

from app.errors import LabBusy, LabError
from app.lab.lock import MachineLock, is_wanted, waiting_lock

# How often a lock that another process holds is tried again: flock offers no wait that an event loop could watch.
LOCK_RETRY_SECONDS = 0.2
TAKEN_WITHIN = 2  # of these, who waits in another process has taken a machine that is free
# How often work that nobody waits for looks whether another process waits for the machine.
WANTED_SECONDS = 0.5
# Who waits takes the machine within LOCK_RETRY_SECONDS once it is free. One that has not in so long never will: it was
# stopped, and holds its lock all the same.
STOPPED_SECONDS = 5.0
# How often who waits for another process is told again: a log has left out the first time (app.cli.progress).
TOLD_AGAIN_SECONDS = 10.0
# How long to wait for another process: a quick calibration takes 30 s, a thorough recommendation 60 s.
LOCK_WAIT_SECONDS = 120.0


class Ticket:
    """A place in the queue.

    expected_seconds: what the measurement should take, for Retry-After. on_preempt: given for work that nobody
    waits for; called when somebody does, here or in another process, and has to end that work. on_wait: called when it
    has to wait, and now and then while it does. on_start: called when it begins. patience_seconds: how long it waits
    for its turn and the lock; None: without end for its turn, LOCK_WAIT_SECONDS for the lock.
    """

    def __init__(self, expected_seconds: float, on_preempt: Callable[[], object] | None = None) -> None:
        self.expected_seconds = expected_seconds
        self.on_preempt = on_preempt
        self.on_wait: Callable[[], object] | None = None
        self.on_start: Callable[[], object] | None = None
        self.patience_seconds: float | None = None
        self.started_at: float | None = None
        self.left_to_others_at: float | None = None  # since when the machine was free, and another process waited
        self.turn = asyncio.Event()

    @property
    def running(self) -> bool:
        """The slot is held: measuring, no longer waiting."""
        return self.started_at is not None

    def remaining_seconds(self) -> float:
        """Seconds until this measurement should be over."""
        spent = 0.0 if self.started_at is None else time.monotonic() - self.started_at
        return max(1.0, self.expected_seconds - spent)


class Slot:
    """Tickets in order of arrival, those with `on_preempt` last."""

    def __init__(self, queue_length: int) -> None:
        self._queue_length = queue_length
        self._tickets: list[Ticket] = []
        self._left_until = 0.0  # to who waits in another process

    @property
    def tickets(self) -> tuple[Ticket, ...]:
        """Who is first, and who waits."""
        return tuple(self._tickets)

    def check_room(self, otherwise: str = "") -> None:
        """Raises LabBusy when the queue is full. otherwise: what else could be done (app.errors)."""
        ahead = [ticket for ticket in self._tickets if ticket.on_preempt is None]
        if len(ahead) > self._queue_length:
            seconds = math.ceil(sum(ticket.remaining_seconds() for ticket in ahead))
            raise LabBusy(seconds, "This machine is measuring and its queue is full.", otherwise)

    def reserve(self, expected_seconds: float, on_preempt: Callable[[], object] | None = None) -> Ticket:
        """Take a place at once. Raises LabBusy when the queue is full.

        Whoever takes a ticket uses it with `hold` or hands it back with `release`.
        """
        if on_preempt is None:
            self.check_room()
        ticket = Ticket(expected_seconds, on_preempt)
        if on_preempt is None:
            self._make_way()
            self._tickets.insert(self._first_preemptible(), ticket)
        else:
            self._tickets.append(ticket)
        self._call_next()
        return ticket

    def release(self, ticket: Ticket) -> None:
        """Hand a place back; harmless when it was handed back before."""
        if ticket in self._tickets:
            self._tickets.remove(ticket)
        self._call_next()

    @contextlib.asynccontextmanager
    async def hold(self, ticket: Ticket) -> AsyncIterator[None]:
        """Wait for the ticket's turn and the machine's lock; hold both. Raises LabError when another process keeps
        the lock, or the ticket's patience ends; in this process every measurement has a deadline."""
        lock = MachineLock()
        try:
            if not (ticket.turn.is_set() and _try_acquire(ticket, lock)):
                _call(ticket.on_wait)
                await _wait_for_both(ticket, lock)
            ticket.started_at = time.monotonic()
            _call(ticket.on_start)
            async with _giving_way(ticket):
                yield
        finally:
            if ticket.running and len(self._tickets) > 1 and is_wanted():
                self._left_until = time.monotonic() + TAKEN_WITHIN * LOCK_RETRY_SECONDS
            lock.release()
            self.release(ticket)

    def _make_way(self) -> None:
        """End the work that nobody waits for, when it is what runs."""
        first = self._tickets[0] if self._tickets else None
        if first is not None and first.on_preempt is not None and first.turn.is_set():
            first.on_preempt()

    def _first_preemptible(self) -> int:
        """Where a ticket goes: behind those that came before, ahead of preemptible ones that do not run yet."""
        for place, ticket in enumerate(self._tickets):
            if ticket.on_preempt is not None and not ticket.turn.is_set():
                return place
        return len(self._tickets)

    def _call_next(self) -> None:
        """At once, but for a moment in which another process that waits finds the machine free: the next one here takes
        it before anybody else could look."""
        left = self._left_until - time.monotonic()
        if self._tickets and left > 0:
            asyncio.get_running_loop().call_later(left, self._call_next)
        elif self._tickets:
            self._tickets[0].turn.set()


async def _wait_for_both(ticket: Ticket, lock: MachineLock) -> None:
    try:
        async with asyncio.timeout(ticket.patience_seconds):
            await ticket.turn.wait()
            await _wait_for(ticket, lock)
    except TimeoutError:
        raise LabError(
            "too-busy",
            f"The machine was busy measuring for {ticket.patience_seconds:.0f} seconds. Try again when that is done.",
        ) from None


async def _wait_for(ticket: Ticket, lock: MachineLock) -> None:
    wanting, is_known = waiting_lock(), ticket.on_preempt is not None
    told_at = time.monotonic()
    try:
        async with asyncio.timeout(LOCK_WAIT_SECONDS):
            while not _try_acquire(ticket, lock):  # another process holds it: no event tells when it lets go
                is_known = is_known or wanting.try_acquire()
                await asyncio.sleep(LOCK_RETRY_SECONDS)
                if time.monotonic() - told_at >= TOLD_AGAIN_SECONDS:
                    told_at = time.monotonic()
                    _call(ticket.on_wait)
    except TimeoutError:
        raise LabError(
            "too-busy",
            f"Another process on this machine has been measuring for {LOCK_WAIT_SECONDS:.0f} seconds. "
            "Try again when it is done.",
        ) from None
    finally:
        wanting.release()


def _try_acquire(ticket: Ticket, lock: MachineLock) -> bool:
    """Work that nobody waits for leaves the machine to who waits for it in another process, who looks now and then.
    Only who holds the machine asks whether it is wanted, as two that ask at once would take each other for a waiter."""
    if not lock.try_acquire():
        ticket.left_to_others_at = None
        return False
    if ticket.on_preempt is None or not is_wanted():
        ticket.left_to_others_at = None
        return True
    now = time.monotonic()
    ticket.left_to_others_at = ticket.left_to_others_at or now
    if now - ticket.left_to_others_at >= STOPPED_SECONDS:
        return True
    lock.release()
    return False


@contextlib.asynccontextmanager
async def _giving_way(ticket: Ticket) -> AsyncIterator[None]:
    """Preempts this ticket's work, if it is of that kind, when another process waits for the machine; but for one that
    did not take it when it was free."""
    preempt = ticket.on_preempt if ticket.left_to_others_at is None else None
    watch = None if preempt is None else asyncio.create_task(_preempt_when_wanted(preempt))
    try:
        yield
    finally:
        if watch is not None:
            watch.cancel()


async def _preempt_when_wanted(preempt: Callable[[], object]) -> None:
    while not is_wanted():  # noqa: ASYNC110 - no event tells of another process
        await asyncio.sleep(WANTED_SECONDS)
    preempt()


def _call(listener: Callable[[], object] | None) -> None:
    if listener is not None:
        listener()
