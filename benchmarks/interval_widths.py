"""What share of `quick`'s intervals would hold the truth of kept runs, were processes taken to differ by other widths.

python -m benchmarks.interval_widths FILE … [--was 0.07 0.11] [--widths 0.055 0.085 …]

FILE: what benchmarks.estimates wrote. --was: the widths by which that run's intervals were made, on one thread and on
more (app.advisor.time_model.intervals; 0.07 and 0.11 until 2026-11-28). --widths: pairs to try. This measures nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from app.advisor.recommendation import Interval
from app.advisor.time_model.intervals import (
    BETWEEN_PROCESSES,
    BETWEEN_PROCESSES_OF_THREADS,
    narrow,
    widen,
)

Widths = tuple[float, float]  # on one thread, on more
BEFORE: Widths = (0.07, 0.11)


class Told(NamedTuple):
    """An interval, the median of the truth's processes, and whether the plan has one thread."""

    interval: Interval
    truth: float
    on_one_thread: bool


def told_in(document: dict[str, Any]) -> Iterator[Told]:
    for row in document["rows"]:
        options = (row.get("quick") or {}).get("options", {})
        for label, truth in row.get("truth", {}).items():
            if (said := options.get(label)) is not None:
                interval = Interval(said["median"], said["low"], said["high"])
                yield Told(interval, truth["median"], "1 thread" in label)


def share_held(told: Sequence[Told], was: Widths, widths: Widths) -> float:
    """Of the intervals, made anew with these widths in the place of those they were made with."""
    held = 0
    for interval, truth, on_one_thread in told:
        place = 0 if on_one_thread else 1
        anew = widen(narrow(interval, was[place]), widths[place])
        held += anew.low <= truth <= anew.high
    return held / len(told)


def _pairs(numbers: Sequence[float]) -> list[Widths]:
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def main(arguments: Sequence[str] | None = None) -> int:
    """A line a file. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.interval_widths", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--was", type=float, nargs=2, default=BEFORE)
    parser.add_argument("--widths", type=float, nargs="+", default=[BETWEEN_PROCESSES, BETWEEN_PROCESSES_OF_THREADS])
    chosen = parser.parse_args(arguments)
    if len(chosen.widths) % 2:
        parser.error("--widths are pairs: of plans on one thread, and on more")
    was: Widths = (chosen.was[0], chosen.was[1])
    for path in chosen.files:
        told = list(told_in(json.loads(path.read_text(encoding="utf-8"))))
        tried = [was, *_pairs(chosen.widths)] if told else []
        shares = ", ".join(f"{one:g} and {more:g}: {share_held(told, was, (one, more)):.1%}" for one, more in tried)
        sys.stdout.write(f"{path.parent.name}/{path.name}: {len(told)} intervals; {shares or 'none'}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
