"""What the code as it stands says of a kept run of benchmarks.crossovers: by that run's calibrations and measurements.

python -m benchmarks.retell_crossovers FILE --profile FILE... [--store FOLDER] [--output FILE]

FILE: what the run wrote; of runs since 2026-11-30 it holds what `quick` measured, by which `quick` is told anew; of an
earlier one only `instant` is, and nothing of `quick`. --profile: the run's calibrations, earliest first. Truth stays as
it was measured; nobody computes beside it, as far as what is told anew knows. Traces are those of this code and torch;
a store keeps them for the next time. This measures nothing, and any machine with as many cores does for it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from app import advisor
from app.advisor.request import Request
from app.advisor.time_model.pooled import pool
from app.service import Crosspoint
from app.settings import Settings
from benchmarks.crossover_scores import describe_scores, score
from benchmarks.crossovers import crossovers_by_pair
from benchmarks.output import output_file
from benchmarks.workloads import WORKLOADS
from probes.hardware import Load
from probes.measurement import Measurement
from probes.profile import Profile, parse_profile

Document = dict[str, Any]


async def retell(document: Mapping[str, Any], calibrations: Sequence[Profile], crosspoint: Crosspoint) -> Document:
    """The document with its rows and its table told anew. Raises LabError."""
    calm = replace(await crosspoint.survey(), load=Load())
    profile, models = pool(tuple(reversed(calibrations))), {row.name: row for row in WORKLOADS}
    rows = []
    judged = [row for row in document["rows"] if "error" not in row]
    for name in dict.fromkeys(row["model"] for row in judged):
        mine = [row for row in judged if row["model"] == name]
        workload = models[name].workload(models[name].batch_sizes[-1])
        trace, measured = await crosspoint.trace(workload), document.get("measured", {}).get(name)
        pairs = {"instant": crossovers_by_pair(advisor.recommend(calm, profile, trace, (), Request(workload)))}
        known = [Measurement.from_json(row) for row in measured or ()]
        quick = advisor.recommend(calm, profile, trace, known, Request(workload)) if known else None
        pairs["quick"] = {} if quick is None else crossovers_by_pair(quick)
        again = [{adviser: found.get((row["from"], row["to"])) for adviser, found in pairs.items()} for row in mine]
        rows += [{**row, **told_anew} for row, told_anew in zip(mine, again, strict=True)]
    rows += [row for row in document["rows"] if "error" in row]
    return {**document, "table": score(rows), "rows": rows}


async def run_retell(document: Mapping[str, Any], calibrations: Sequence[Profile], store: Path) -> Document:
    async with Crosspoint(Settings.from_environment(data_dir=store, learning=False)) as crosspoint:
        return await retell(document, calibrations, crosspoint)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, and write the document where one is asked for. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.retell_crossovers", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("result", type=Path, help="of benchmarks.crossovers")
    parser.add_argument("--profile", type=Path, nargs="+", required=True, help="its calibrations, the earliest first")
    parser.add_argument("--store", type=Path, help="keeps traces for the next time")
    parser.add_argument("--output", type=output_file)
    chosen = parser.parse_args(arguments)
    try:
        document = json.loads(chosen.result.read_text(encoding="utf-8"))
        calibrations = [parse_profile(file.read_bytes()) for file in chosen.profile]
        with tempfile.TemporaryDirectory() as folder:
            again = asyncio.run(run_retell(document, calibrations, chosen.store or Path(folder)))
    except (OSError, ValueError, KeyError, TypeError) as error:
        parser.error(f"{chosen.result} cannot be told again by these calibrations: {error!r}")
    if chosen.output is not None:
        chosen.output.write_text(json.dumps(again, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(describe_scores(again["table"]) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
