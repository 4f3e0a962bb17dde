"""Where plans cross: the batch that `instant` tells, against one found by bisection with real steps.

python -m benchmarks.crossovers                      eight models, some five minutes on two cores
python -m benchmarks.crossovers --models 2 --seconds 1

For each pair of plans that `instant` tells a crossover of, both run at batch sizes from 1 to 4096 in turns, then
between the last batch at which the first is faster and the next, until these are within a factor of 1.5.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from app.advisor.recommendation import Crossover
from app.advisor.request import Request
from app.service import Crosspoint
from app.settings import Settings
from benchmarks.workloads import WORKLOADS, Row

RESULTS = Path(__file__).parent / "results"
Document = dict[str, Any]
# Steps short enough at every batch that a bisection takes seconds.
MODELS = ("iris", "tabular", "digits", "dense deep", "image small", "signal", "lstm", "encoder")
LADDER = (1, 4, 16, 64, 256, 1024, 4096)
NARROW = 1.5
FACTOR = 2.0  # what counts as right
LONGEST_STEP_SECONDS = 0.5  # of larger batches nothing is asked


@dataclass(frozen=True, slots=True)
class Bracket:
    """The first plan is faster at `low`, the second at `high` and beyond; 1 and None: always; the largest asked and
    None: never."""

    kind: str
    low: int | None = None
    high: int | None = None


def bracket_of(faster: dict[int, bool]) -> Bracket:
    """faster: by batch size, whether the second plan is the faster one."""
    sizes = sorted(faster)
    behind = [size for size in sizes if not faster[size]]
    if not behind:
        return Bracket("always")
    if behind[-1] == sizes[-1]:
        return Bracket("never")
    return Bracket("at", behind[-1], sizes[sizes.index(behind[-1]) + 1])


def is_right(told: Document, truth: Bracket) -> bool | None:
    """Within a factor of two of the true bracket; an end of the range counts as told when it says so. None where the
    answer says that it cannot tell."""
    if told["kind"] == "undecided":
        return None
    if told["kind"] != "at" or truth.kind != "at":
        near_start = truth.kind == "at" and told["kind"] == "always" and (truth.high or 0) <= FACTOR
        near_start |= told["kind"] == "at" and truth.kind == "always" and (told["batch_size"] or 0) <= FACTOR
        return told["kind"] == truth.kind or near_start
    assert truth.low is not None
    assert truth.high is not None
    return bool(truth.low / FACTOR <= told["batch_size"] <= truth.high * FACTOR)


async def find_truth(crosspoint: Crosspoint, row: Row, crossover: Crossover, seconds: float) -> Bracket:
    """By real steps of both plans in turns."""
    faster: dict[int, bool] = {}

    async def compare(sizes: Sequence[int]) -> None:
        plans = (crossover.start, crossover.to)
        rows = await crosspoint.measure(
            Request(row.workload(sizes[0])), seconds=seconds * len(sizes), plans=plans, batch_sizes=sizes
        )
        times = {(r.plan.key, r.batch_size): r.step.median for r in rows if r.step is not None}
        for size in sizes:
            first, second = times.get((plans[0].key, size)), times.get((plans[1].key, size))
            if first is not None and second is not None:
                faster[size] = second < first

    await compare([size for size in LADDER if await _is_short(crosspoint, row, size)])
    while (bracket := bracket_of(faster)).kind == "at":
        assert bracket.low is not None
        assert bracket.high is not None
        if bracket.high <= NARROW * bracket.low or bracket.high - bracket.low <= 1:
            break
        await compare([round((bracket.low * bracket.high) ** 0.5)])
    return bracket


async def _is_short(crosspoint: Crosspoint, row: Row, size: int) -> bool:
    answer = await crosspoint.recommend(Request(row.workload(size)))
    times = [option.step_seconds.median for option in answer.options if option.step_seconds is not None]
    return bool(times) and max(times) <= LONGEST_STEP_SECONDS


async def run_crossovers(models: Sequence[str], seconds: float, folder: Path, say: Callable[[str], None]) -> Document:
    """The document that is kept."""
    found: list[Document] = []
    async with Crosspoint(Settings.from_environment(data_dir=folder)) as crosspoint:
        say("calibrating")
        profile = await crosspoint.calibrate("full")
        for row in (row for row in WORKLOADS if row.name in models):
            answer = await crosspoint.recommend(Request(row.workload()))
            for crossover in answer.crossovers:
                truth = await find_truth(crosspoint, row, crossover, seconds)
                told = crossover.to_json()
                right = is_right(told, truth)
                found.append(
                    {"model": row.name, "told": told, "truth": [truth.kind, truth.low, truth.high], "right": right}
                )
                pair = f"{crossover.start.label} -> {crossover.to.label}"
                say(
                    f"{row.name}: {pair}: told {told['kind']} {told['batch_size']}, truth {found[-1]['truth']}: {right}"
                )
    decided = [row["right"] for row in found if row["right"] is not None]
    return {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": profile.machine,
        "noise": profile.noise,
        "right": sum(decided),
        "decided": len(decided),
        "undecided": len(found) - len(decided),
        "rows": found,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print a line a pair, and write the document. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.crossovers", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--seconds", type=float, default=1.5, help="both plans at one batch size")
    parser.add_argument("--models", type=int, default=len(MODELS), help="how many of the models")
    parser.add_argument("--output", type=Path, default=RESULTS / "crossovers.json")
    chosen = parser.parse_args(arguments)

    def say(line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    with tempfile.TemporaryDirectory() as folder:
        document = asyncio.run(run_crossovers(MODELS[: chosen.models], chosen.seconds, Path(folder), say))
    chosen.output.parent.mkdir(parents=True, exist_ok=True)
    chosen.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    right, decided, undecided = (document[name] for name in ("right", "decided", "undecided"))
    say(f"within a factor of {FACTOR:g}: {right} of {decided}; {undecided} undecided")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
