"""Between the lab and the store: what a process sent is parsed, kept if it can be, and used in either case."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from app.errors import LabError, StoreError
from app.lab import Ticket
from app.lab.child import OnEvent

T = TypeVar("T")
log = logging.getLogger(__name__)

# Called from the event loop with a fraction from 0 to 1 and a few words.
OnProgress = Callable[[float, str], None]
MOST_TOLD = 0.99  # of a process that is not done
# Sends a job to a process and gives its result.
RunJob = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Kept(Generic[T]):
    """A result, and why it was not saved; None when it was."""

    value: T
    trouble: str | None


def parse_sent(read: Callable[[dict[str, Any]], T], document: dict[str, Any]) -> T:
    """What a process sent, as a dataclass. Raises LabError when it is none: the two sides are of different versions."""
    try:
        return read(document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        log.warning("A measuring process sent something unexpected: %r", error)
        raise LabError("failed", "The measuring process sent a result that could not be read.") from error


async def unless_unreadable(reading: Awaitable[T]) -> T | None:
    """None where the store cannot be read: it holds nothing that cannot be measured again."""
    try:
        return await reading
    except StoreError as error:
        log.warning("%s", error)
        return None


async def trouble_with(writing: Awaitable[None]) -> str | None:
    """Why something was not saved, as a sentence; None: it was."""
    try:
        await writing
    except StoreError as error:
        log.warning("%s", error)
        return str(error)
    return None


def forward_progress(on_progress: OnProgress | None) -> OnEvent:
    """Turns a process's progress events into calls of `on_progress`. While a process tells how far it is it is not
    done: one that takes longer than it meant to would stand at 1."""

    def forward(event: dict[str, Any]) -> None:
        fraction = event.get("fraction")
        if on_progress is not None and isinstance(fraction, int | float):
            on_progress(min(MOST_TOLD, max(0.0, float(fraction))), str(event.get("message") or ""))

    return forward


def say_waiting(ticket: Ticket, on_progress: OnProgress | None) -> None:
    """Tell `on_progress` where the ticket has to wait, and when it does so no more: until the process that measures
    says what it does, seconds go by. What the ticket calls when it begins is called as well."""
    if on_progress is None:
        return
    say, begin = on_progress, ticket.on_start

    def say_starting() -> None:
        say(0.0, "starting")
        if begin is not None:
            begin()

    ticket.on_wait = lambda: say(0.0, "waiting for another measurement on this machine")
    ticket.on_start = say_starting


async def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """What it gives, also to who is cancelled meanwhile: for keeping what took long to measure."""
    task = asyncio.create_task(work)
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(task)
    return task.result()


def say_nothing(_fraction: float, _message: str) -> None:
    """The OnProgress of somebody who does not listen."""
