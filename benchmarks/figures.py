"""Figures beside their targets: each told as it is measured, all written as one document."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.machine import read_machine
from benchmarks.output import output_file

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Figure:
    """One number. target: what it should stay below; None: it is only reported. failures: of what it was taken of; with
    any no target is met."""

    name: str
    value: float
    unit: str
    target: float | None = None
    details: dict[str, Any] | None = None
    failures: int = 0

    @property
    def met(self) -> bool | None:
        return None if self.target is None else self.value < self.target and not self.failures


def describe(figure: Figure) -> str:
    """A line for people."""
    verdict = (
        {None: "", True: f"  (below {figure.target:g}: yes)", False: f"  (below {figure.target:g}: NO)"}
        if (figure.target is not None)
        else {None: ""}
    )
    failures = f"  ({figure.failures} failed)" if figure.failures else ""
    return f"{figure.name}: {figure.value:.3g} {figure.unit}{verdict[figure.met]}{failures}"


def report(
    name: str,
    about: str | None,
    run_all: Callable[[bool, Callable[[str], None]], list[Figure]],
    arguments: Sequence[str] | None,
) -> int:
    """The command `python -m benchmarks.NAME`: measure, tell, write. about: its module's docstring. run_all: takes
    whether to be short, and how to say a line."""
    first_line = (about or "").splitlines()[0]
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=first_line)
    parser.add_argument("--short", action="store_true", help="few runs, only to see that it works")
    parser.add_argument("--output", type=output_file, default=RESULTS / f"{name}.json")
    chosen = parser.parse_args(arguments)
    machine = read_machine()  # before the load that measuring is
    figures = run_all(chosen.short, _say)
    document = {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        **machine,
        "figures": [{**asdict(figure), "met": figure.met} for figure in figures],
    }
    chosen.output.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
