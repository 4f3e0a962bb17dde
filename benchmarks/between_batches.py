"""How good is a CPU's step at a batch that did not run, told from one that did on either side? Replayed from a kept run
of benchmarks.crossovers, on any machine with as many cores.

    python -m benchmarks.between_batches FILE --profile FILE... [--store FOLDER]

FILE: what the run wrote. --profile: the run's calibrations, earliest first. Of each plan of each model every three
batches of which the middle one is nearly an octave from both others are taken: what it took against what is told of it
from those two, by the line through them alone, and by the profile that knows of neither. Truth and what it is told from
ran in the same processes, so that intervals, which are also of what another process takes, should hold more than four
in five.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from app.advisor.recommendation import Interval
from app.advisor.time_model.measured import MeasuredTime
from app.advisor.time_model.pooled import pool
from app.advisor.time_model.predicted import PredictedTime, predict
from app.advisor.time_model.step_time import PlanTime
from app.service import Crosspoint
from app.settings import Settings
from benchmarks.workloads import WORKLOADS
from probes.measurement import Measurement, Timing
from probes.profile import Profile, parse_profile
from probes.workload.description import Plan

NEARLY_AN_OCTAVE = 0.9
GAPS = (4.0, 6.0, 8.0, math.inf)  # octaves between the two that ran, at most
TELLERS = ("told", "line", "alone")


class Middle(NamedTuple):
    """One batch, told from two. octaves: between those two. alone: by the profile."""

    seconds: float
    octaves: float
    told: Interval
    line: Interval
    alone: Interval

    def off(self, teller: str) -> float:
        """Told over took, a logarithm."""
        told: Interval = getattr(self, teller)
        return math.log(told.median / self.seconds)

    def is_held(self, teller: str) -> bool:
        told: Interval = getattr(self, teller)
        return told.low <= self.seconds <= told.high


def times_of_plans(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], dict[int, float]]:
    """Median seconds by batch size, of each plan (its label) of each model that the run timed."""
    found: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for row in rows:
        for place, side in enumerate(("from", "to")):
            for batch_size, turns in row.get("times", {}).items():
                if turns[place]:
                    found[row["model"], row[side]][int(batch_size)] = statistics.median(turns[place])
    return dict(found)


def middles(plan: Plan, times: Mapping[int, float], predicted: PredictedTime | None) -> Iterator[Middle]:
    """Every batch from every two around it."""
    for left, asked, right in combinations(sorted(times), 3):
        if math.log2(min(asked / left, right / asked)) < NEARLY_AN_OCTAVE:
            continue
        timings = {size: Timing.from_samples([times[size]] * 5) for size in (left, right)}
        rows = {size: Measurement(plan, size, "resident", "ok", step=timing) for size, timing in timings.items()}
        ran = MeasuredTime(rows, "resident")
        told, line = (PlanTime(plan, ran, known, None).seconds(asked, "resident") for known in (predicted, None))
        alone = None if predicted is None else predicted.at(asked, "resident")
        if told is not None and line is not None and alone is not None:
            yield Middle(times[asked], math.log2(right / left), told, line, alone)


async def tell(document: Mapping[str, Any], profile: Profile, crosspoint: Crosspoint) -> list[Middle]:
    """Of the whole run. Raises LabError."""
    models, plans = {row.name: row for row in WORKLOADS}, {point.plan.label: point.plan for point in profile.points}
    found: list[Middle] = []
    for (name, label), times in times_of_plans(document["rows"]).items():
        trace = await crosspoint.trace(models[name].workload(models[name].batch_sizes[-1]))
        found += middles(plans[label], times, predict(profile, plans[label], trace, None))
    return found


def describe(found: Sequence[Middle]) -> str:
    lines = [
        "| octaves between | told by | median | four in five | nine in ten | intervals hold | |",
        "| --- " * 7 + "|",
    ]
    for least, most in zip((0.0, *GAPS), GAPS, strict=False):
        group = [middle for middle in found if least < middle.octaves <= most]
        name = f"up to {most:g}" if math.isfinite(most) else f"beyond {least:g}"
        for teller in TELLERS if len(group) > 1 else ():
            off = statistics.quantiles((abs(middle.off(teller)) for middle in group), n=10, method="inclusive")
            held = statistics.fmean(middle.is_held(teller) for middle in group)
            shown = " | ".join(f"{math.expm1(off[place]):.1%}" for place in (4, 7, 8))
            lines.append(f"| {name} | {teller} | {shown} | {held:.0%} | {len(group)} |")
    return "\n".join(lines)


async def run(document: Mapping[str, Any], calibrations: Sequence[Profile], store: Path) -> str:
    async with Crosspoint(Settings.from_environment(data_dir=store, learning=False)) as crosspoint:
        return describe(await tell(document, pool(tuple(reversed(calibrations))), crosspoint))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.between_batches", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("result", type=Path, help="of benchmarks.crossovers")
    parser.add_argument("--profile", type=Path, nargs="+", required=True, help="its calibrations, the earliest first")
    parser.add_argument("--store", type=Path, help="keeps traces for the next time")
    chosen = parser.parse_args(arguments)
    try:
        document = json.loads(chosen.result.read_text(encoding="utf-8"))
        calibrations = [parse_profile(file.read_bytes()) for file in chosen.profile]
        with tempfile.TemporaryDirectory() as folder:
            table = asyncio.run(run(document, calibrations, chosen.store or Path(folder)))
    except (OSError, ValueError, KeyError, TypeError) as error:
        parser.error(f"{chosen.result} cannot be told again by these calibrations: {error!r}")
    sys.stdout.write(table + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
