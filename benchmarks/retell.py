"""What `instant` of the code as it stands says of a kept run of benchmarks.estimates: by that run's own calibrations.

python -m benchmarks.retell FILE [--all-calibrations | --at-least N | --by FILE …] [--store FOLDER] [--output FILE]

Prices, fits and rules can be tried in minutes so, against an hour of truth, and a run's table told again by later
code. FILE: what the run wrote, with its calibrations beside it (estimates_profile_1.json and so on). `instant` is told
as in the run: of each block by its calibration and those before it, and of a machine on which nobody else computes.
--all-calibrations: of every block by all of the run's calibrations, those after it among them, as a service tells that
has made so many; a run's first block has one alone. --at-least 2: as a service tells from its first minutes on, which
calibrates twice within them. --by: by all of these exported calibrations instead, of the same machine in another hour.
Rules of thumb are told anew, too; truth and `quick` stay as they were measured. Traces
are those of this code and torch; a store keeps them for the next time. This measures nothing, and any machine does for
it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from app import advisor
from app.advisor.plans import candidate_plans
from app.advisor.request import Request
from app.advisor.time_model.pooled import pool
from app.service import Crosspoint
from app.settings import Settings
from benchmarks.estimate_table import describe_table, make_table
from benchmarks.estimates import profile_file, told
from benchmarks.output import output_file
from benchmarks.rules_of_thumb import baselines
from benchmarks.workloads import WORKLOADS
from probes.hardware import Load
from probes.profile import Profile, parse_profile

Document = dict[str, Any]


def read_calibrations(result: Path) -> list[Profile]:
    """Those of the run that wrote this result, the earliest first. Raises FileNotFoundError, InvalidProfile."""
    found: list[Profile] = []
    while (file := profile_file(result, len(found) + 1)).exists():
        found.append(parse_profile(file.read_bytes()))
    if not found:
        raise FileNotFoundError(f"No calibration lies beside {result}: {profile_file(result, 1)} is not there.")
    return found


async def retell(rows: Sequence[Document], calibrations: Sequence[Profile], crosspoint: Crosspoint) -> list[Document]:
    """The rows with what `instant` and the rules of thumb say now; those that had no truth stay as they are."""
    calm = replace(await crosspoint.survey(), load=Load())
    models = {row.name: row for row in WORKLOADS}
    known = [row for row in rows if row.get("truth") and row["name"] in models and row["block"] < len(calibrations)]
    workloads = [models[row["name"]].workload(row["batch_size"]) for row in known]
    traces = [await crosspoint.trace(workload) for workload in workloads]

    def tell(profile: Profile) -> list[Document]:
        requests = [Request(workload, effort="instant") for workload in workloads]
        pairs = zip(traces, requests, strict=True)
        return [told(advisor.recommend(calm, profile, trace, (), request)) for trace, request in pairs]

    # One profile after another: what is fitted to one is kept while it is asked, and takes longer than an answer.
    pools = [pool(tuple(reversed(calibrations[: block + 1]))) for block in range(len(calibrations))]
    by_pool = [tell(profile) for profile in pools]
    by_each = [tell(calibration) for calibration in calibrations]
    again = {
        id(row): {
            **row,
            "instant": by_pool[row["block"]][place],
            "instant of each calibration alone": [answers[place] for answers in by_each],
            "baselines": {
                plan.label: baselines(pools[row["block"]], plan, traces[place], row["batch_size"])
                for plan in candidate_plans(calm, Request(workloads[place]))
            },
        }
        for place, row in enumerate(known)
    }
    return [again.get(id(row), row) for row in rows]


async def run_retell(
    document: Mapping[str, Any], calibrations: Sequence[Profile], store: Path, *, at_least: float = 1
) -> Document:
    """The document again, with its table. at_least: so many calibrations tell of each block, or all where there are
    fewer. Raises LabError."""
    rows, last = document["rows"], len(calibrations) - 1
    least = int(min(at_least - 1, last))
    rows = [{**row, "block": max(row["block"], least)} if row.get("block", last + 1) <= last else row for row in rows]
    async with Crosspoint(Settings.from_environment(data_dir=store, learning=False)) as crosspoint:
        rows = await retell(rows, calibrations, crosspoint)
    return {**document, "table": make_table(rows), "rows": rows}


def by_others(document: Mapping[str, Any], count: int) -> Document:
    """Each of its blocks as one that so many calibrations tell of."""
    rows = [{**row, "block": count - 1} if "block" in row else row for row in document["rows"]]
    return {**document, "rows": rows}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, and write the document where one is asked for. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.retell", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("result", type=Path, help="of benchmarks.estimates, with its calibrations beside it")
    many = parser.add_mutually_exclusive_group()
    many.add_argument("--all-calibrations", action="store_true", help="tell each block by all of them")
    many.add_argument("--at-least", type=int, default=1, metavar="N", help="tell each block by N of them, or more")
    many.add_argument("--by", nargs="+", type=Path, metavar="FILE", help="tell each block by these instead")
    parser.add_argument("--store", type=Path, help="keeps traces for the next time")
    parser.add_argument("--output", type=output_file)
    chosen = parser.parse_args(arguments)
    try:
        document = json.loads(chosen.result.read_text(encoding="utf-8"))
        other = [parse_profile(file.read_bytes()) for file in chosen.by or ()]
        calibrations = other or read_calibrations(chosen.result)
        document = by_others(document, len(other)) if other else document
    except (OSError, ValueError) as error:
        parser.error(f"{chosen.result} cannot be told again{' by these' if chosen.by else ''}: {error}")
    with tempfile.TemporaryDirectory() as folder:
        at_least = math.inf if chosen.all_calibrations else chosen.at_least
        again = asyncio.run(run_retell(document, calibrations, chosen.store or Path(folder), at_least=at_least))
    if chosen.output is not None:
        chosen.output.write_text(json.dumps(again, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(describe_table(again["table"]) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
