"""Progress on standard error: a bar at a terminal, a line now and then in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

Report = Callable[[float, str], None]  # fraction from 0 to 1, what is being done

LINE_SECONDS = 10.0  # a log gets a line this often at most
REFRESHES = 4  # of the bar, a second: it is drawn on the machine that is being measured


@contextmanager
def show_progress(quiet: bool = False) -> Iterator[Report]:
    """Yield the function that is told how far the work is."""
    if quiet:
        yield lambda fraction, message: None
    elif sys.stderr.isatty():
        with _bar() as report:
            yield report
    else:
        yield SparseLines(sys.stderr)


@contextmanager
def _bar() -> Iterator[Report]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    progress = Progress(*columns, console=Console(stderr=True), transient=True, refresh_per_second=REFRESHES)
    progress.start()
    try:
        task = progress.add_task("starting", total=1.0)
        yield lambda fraction, message: progress.update(task, completed=fraction, description=message)
    finally:
        with suppress(OSError):  # of a terminal that is gone: it must not take the place of what ended the work
            progress.stop()


class SparseLines:
    """One line each LINE_SECONDS at most; nothing for work that is over sooner."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._last = clock()

    def __call__(self, fraction: float, message: str) -> None:
        now = self._clock()
        if now - self._last < LINE_SECONDS:
            return
        self._last = now
        self._stream.write(f"{fraction:4.0%}  {message}\n")
        self._stream.flush()
