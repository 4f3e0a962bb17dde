"""`crosspoint watch`: what changes on this machine, as it changes."""

from __future__ import annotations

import itertools
import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from app.cli.endings import fail_usage
from app.cli.numbers import FloatRange

if TYPE_CHECKING:
    from probes.hardware import Accelerator
    from probes.live import Live, LiveReader

# How often cards that the survey does not know may set off another one.
SURVEY_SECONDS = 5.0
SHORTEST_SECONDS, LONGEST_SECONDS = 0.1, 3600.0


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document a line, as GET /hardware/events sends.")
@click.option("--count", type=click.IntRange(1), metavar="NUMBER", help="End after so many readings.")
@click.option(
    "--interval",
    type=FloatRange(SHORTEST_SECONDS, LONGEST_SECONDS),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between two readings.",
)
def command(as_json: bool, count: int | None, interval: float) -> None:
    """Show how busy CPU and accelerators are, once a second until Ctrl-C.

    At a terminal a table that keeps itself new, elsewhere a line a reading.
    """
    from app.settings import Settings

    settings = Settings.from_environment()
    if settings.sysroot != Path("/"):
        fail_usage("A captured machine does not change: unset CROSSPOINT_SYSROOT to watch this one.")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the terminal is put in order
    with _showing(as_json) as show:
        for live in itertools.islice(_read(interval, settings.survey_seconds), count):
            show(live)


@contextmanager
def _showing(as_json: bool) -> Iterator[Callable[[Live], None]]:
    """The function that shows a reading."""
    if as_json:
        yield lambda live: _print_line(json.dumps(live.to_json(), ensure_ascii=False))
    elif sys.stdout.isatty():
        from app.cli.watch_view import live_table

        with live_table() as show:
            yield show
    else:
        from app.cli.watch_view import describe_live

        yield lambda live: _print_line(describe_live(live))


def _print_line(line: str) -> None:
    click.echo(line)
    sys.stdout.flush()


def _read(interval: float, deadline_seconds: float) -> Iterator[Live]:
    """A reading each interval, for ever; the first after one interval, for how busy a CPU is shows over time."""
    from probes.live import LiveReader

    reader = LiveReader(interval)
    cards = KnownCards(deadline_seconds)
    reader.start()
    try:
        cards.survey()
        due = time.monotonic() + interval
        while True:
            time.sleep(max(0.0, due - time.monotonic()))
            yield _read_once(reader, cards)
            due += interval * max(1, -int((due - time.monotonic()) // interval))  # what was missed is not made up for
    finally:
        reader.stop()


def _read_once(reader: LiveReader, cards: KnownCards) -> Live:
    live = reader.read(cards.known)
    if live.outdated:
        cards.survey_aside()
    return live


class KnownCards:
    """The cards of the last survey; another one is taken aside, so that a driver that hangs holds up nothing."""

    def __init__(self, deadline_seconds: float) -> None:
        self._deadline_seconds = deadline_seconds
        self._thread: threading.Thread | None = None
        self._began = 0.0
        self.known: tuple[Accelerator, ...] = ()

    def survey(self) -> None:
        from probes.survey import take_survey

        self._began = time.monotonic()
        self.known = take_survey(deadline_seconds=self._deadline_seconds).accelerators

    def survey_aside(self) -> None:
        """Not while one is under way, nor each time that one did not help."""
        under_way = self._thread is not None and self._thread.is_alive()
        if not under_way and time.monotonic() - self._began >= SURVEY_SECONDS:
            self._thread = threading.Thread(target=self.survey, daemon=True, name="survey")
            self._thread.start()
