"""Every suite, one after another: `python -m benchmarks [SUITE …] [its arguments]`.

Each is a process of its own, so that none inherits what another left in memory. Results go to
benchmarks/results/<date>-<machine>/, beside a description of the machine. Alone on the machine, please.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.crossover_scores import describe_scores
from benchmarks.largest_batch import describe_table
from benchmarks.machine import read_machine
from benchmarks.survey import write_table

RESULTS = Path(__file__).parent / "results"
# Name -> module; each takes --output FILE and writes JSON there. Add one: a module, a line.
SUITES = {
    "neighbours": "benchmarks.neighbours",
    "service": "benchmarks.service",
    "advisor": "benchmarks.advisor",
    "survey": "benchmarks.survey",
    "decisions": "benchmarks.decisions",
    "estimates": "benchmarks.estimates",
    "operations": "benchmarks.operations",
    "crossovers": "benchmarks.crossovers",
    "largest_batch": "benchmarks.largest_batch",
    "memory": "benchmarks.memory",
    "traces": "benchmarks.traces",
    "likeness": "benchmarks.likeness",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suites. Returns 1 when one of them failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"of {', '.join(SUITES)}; all when left out")
    chosen, more = parser.parse_known_args(arguments)
    if unknown := set(chosen.suites) - SUITES.keys():
        parser.error(f"{', '.join(sorted(unknown))}: no such suite; there are {', '.join(SUITES)}")
    machine = read_machine()
    folder = RESULTS / f"{datetime.now(UTC):%Y-%m-%d}-{machine['slug']}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "machine.json").write_text(json.dumps(machine, indent=2) + "\n", encoding="utf-8")
    failed = [name for name in chosen.suites or SUITES if not run_suite(name, folder, more)]
    (folder / "summary.md").write_text(summarize(machine, folder), encoding="utf-8")
    for name in failed:
        sys.stderr.write(f"The suite {name} failed.\n")
    sys.stdout.write(f"Results: {folder}\n")
    return 1 if failed else 0


def run_suite(name: str, folder: Path, more: Sequence[str]) -> bool:
    """Whether it ended well."""
    sys.stdout.write(f"== {name}\n")
    sys.stdout.flush()
    words = [sys.executable, "-m", SUITES[name], "--output", folder / f"{name}.json", *more]
    return subprocess.run(words, check=False).returncode == 0


def summarize(machine: dict[str, Any], folder: Path) -> str:
    """A page of Markdown: the machine, the service's figures beside their targets, how good the decisions were."""
    lines = [f"# {machine['machine']}", "", f"Python {machine['python']}, torch {machine['torch']}.", ""]
    measured = [found for name in ("service", "advisor") if (found := _read(folder / f"{name}.json")) is not None]
    if measured:
        lines += ["| figure | measured | target | met |", "| --- | --- | --- | --- |"]
        lines += [_figure_row(figure) for suite in measured for figure in suite["figures"]]
    survey = _read(folder / "survey.json")
    if survey is not None:
        lines += ["", *write_table(survey["figures"])]
    decisions = _read(folder / "decisions.json")
    if decisions is not None:
        lines += ["", "| adviser | mean slowdown | worst | best plan named |", "| --- | --- | --- | --- |"]
        lines += [_adviser_row(name, row) for name, row in decisions["summary"].items()]
    crossovers = _read(folder / "crossovers.json")
    if crossovers is not None:
        lines += ["", describe_scores(crossovers["table"])]
    largest = _read(folder / "largest_batch.json")
    if largest is not None:
        lines += ["", describe_table(largest)]
    return "\n".join(lines) + "\n"


def _figure_row(figure: dict[str, Any]) -> str:
    met = {None: "", True: "yes", False: "no"}[figure["met"]]
    target = "" if figure["target"] is None else f"below {figure['target']:g} {figure['unit']}"
    failures = f" ({figure['failures']} failed)" if figure.get("failures") else ""  # earlier results count none
    return f"| {figure['name']} | {figure['value']:.3g} {figure['unit']}{failures} | {target} | {met} |"


def _adviser_row(name: str, row: dict[str, Any]) -> str:
    mean, worst = ("" if row[field] is None else f"{row[field]:.1%}" for field in ("mean_slowdown", "worst_slowdown"))
    return f"| {name} | {mean} | {worst} | {row['best_named']} of {row['models']} |"


def _read(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        return None
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


if __name__ == "__main__":
    raise SystemExit(main())
