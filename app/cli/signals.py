"""TERM and HUP end a command as Ctrl-C does: its processes and their temporary files go with it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

Answer = TypeVar("Answer")

ENDING = (signal.SIGTERM, signal.SIGHUP)  # of batch systems, containers and `timeout`; of a terminal that is closed


def run_until_signalled(work: Coroutine[Any, Any, Answer]) -> Answer:
    """`asyncio.run`, whose work such a signal cancels. Raises SystemExit with 128 + the signal, as shells report it."""
    came: list[int] = []
    try:
        return asyncio.run(_listening(work, came))
    except asyncio.CancelledError:
        if not came:
            raise
        raise SystemExit(128 + came[0]) from None


async def _listening(work: Coroutine[Any, Any, Answer], came: list[int]) -> Answer:
    """came: gets the signal that ended the work."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def end(number: int) -> None:
        if not came:  # `timeout` sends it twice: the second one must not break off the putting in order
            came.append(number)
            task.cancel()

    for number in ENDING:
        if signal.getsignal(number) is signal.SIG_DFL:  # under nohup HUP is ignored, and stays so
            loop.add_signal_handler(number, end, number)
    return await work
