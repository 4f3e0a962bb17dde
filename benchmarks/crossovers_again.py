"""Measures batches of a kept run of benchmarks.crossovers once more, where the others contradict them.

python -m benchmarks.crossovers_again FILE [--output FILE]

A batch's processes run within seconds, and a machine that is shared has slow minutes: two threads were behind at 38
samples by a third, where they were ahead at 23 and at 64. What advisers told stays as it was; truth has twice as many
processes at such batches. Later runs do this by themselves.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.advisor.plans import candidate_plans
from app.advisor.request import Request
from app.service import Crosspoint
from app.settings import Settings
from benchmarks.crossover_scores import describe_scores, score
from benchmarks.crossovers import Measured, Pair
from benchmarks.output import output_file
from benchmarks.workloads import WORKLOADS
from probes.microtrain.processes import fresh_processes

Document = dict[str, Any]


async def look_again(document: Document, folder: Path) -> Document:
    """The document with the truth of today's code."""
    models = {row.name: row for row in WORKLOADS}
    rows = list(document["rows"])
    async with Crosspoint(Settings.from_environment(data_dir=folder)) as crosspoint:
        for name in dict.fromkeys(row["model"] for row in rows if "error" not in row):
            mine = [row for row in rows if row["model"] == name and "error" not in row]
            workload = models[name].workload(models[name].batch_sizes[-1])
            plans = candidate_plans(await crosspoint.survey(), Request(workload))
            kept = (times_of(mine), times_of(mine, "calm"))
            measured = Measured(crosspoint, models[name], plans, document["seconds_a_batch"], *kept)
            pairs: list[Pair] = [(row["from"], row["to"]) for row in mine]
            truths = await measured.look_again(pairs)
            for row, pair in zip(mine, pairs, strict=True):
                row["truth"] = truths[pair].to_json()
                row |= json.loads(json.dumps(measured.document(pair)))
            fresh_processes.end()
    return {**document, "looked_again": True, "table": score(rows), "rows": rows}


def times_of(rows: Sequence[Document], name: str = "times") -> dict[int, dict[str, list[Any]]]:
    """By batch size and plan, of one model's pairs. name: `times`, or `calm`, which earlier runs do not have."""
    times: dict[int, dict[str, list[Any]]] = {}
    for row in rows:
        for size, both in row.get(name, {}).items():
            times.setdefault(int(size), {}).update(zip((row["from"], row["to"]), both, strict=True))
    return times


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.crossovers_again", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--output", type=output_file, help="where to write it; else the same file")
    chosen = parser.parse_args(arguments)
    document = json.loads(chosen.file.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        again = asyncio.run(look_again(document, Path(folder)))
    (chosen.output or chosen.file).write_text(json.dumps(again, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(describe_scores(again["table"]) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
