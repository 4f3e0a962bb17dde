"""Do measurements of other models help? From kept rows of benchmarks.estimates: nothing is measured, models are traced.

python -m benchmarks.likeness                        the rows of the newest result
python -m benchmarks.likeness --rows FILE

Each model's predictions are corrected by what other models took, as a service would that had measured those before:
all other models, those of other families alone, and a few models drawn by chance; never by the same network in the
other mode. Taught by truth, and by what `quick` had measured (one batch size a model, two seconds a plan). Judged by
truth; plans on the CPU alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import re
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

from app.advisor.time_model.experience import Experience, Learned
from app.lessons import lesson_of, most_like, nearest_knot
from app.service import Crosspoint
from app.settings import Settings
from app.store.lessons import LessonRow
from benchmarks.output import output_file
from benchmarks.workloads import WORKLOADS, twins
from probes.signature import signature_of
from probes.trace import Trace
from probes.workload.description import Plan

Document = dict[str, Any]
RESULTS = Path(__file__).parent / "results"
PRECISIONS = ("fp32", "bf16")
DRAWS = 5


class Case(NamedTuple):
    """One plan of a model at a batch size: seconds as predicted with a spread, as measured for long and by `quick`."""

    name: str
    family: str
    mode: str
    batch_size: int
    plan: Plan
    predicted: float
    spread: float
    truth: float
    quick: float | None


def cpu_plan(label: str) -> Plan | None:
    """By its label, which names all that such a plan sets; None of any other."""
    found = re.fullmatch(r"cpu (\w+), (\d+) threads?", label)
    return Plan("cpu", found[1], int(found[2])) if found and found[1] in PRECISIONS else None  # type: ignore[arg-type]


def read_cases(rows: Iterable[Document]) -> list[Case]:
    found = []
    for row in rows:
        quick = (row.get("quick") or {}).get("options", {})
        for label, true in (row.get("truth") or {}).items():
            told, plan = row["instant"]["options"].get(label), cpu_plan(label)
            if told is None or told["basis"] != "predicted" or plan is None:
                continue
            ran = quick.get(label)
            found.append(
                Case(
                    row["name"],
                    row["family"],
                    row["mode"],
                    row["batch_size"],
                    plan,
                    told["median"],
                    math.log(told["high"] / told["low"]) / 2,
                    true["median"],
                    ran["median"] if ran is not None and ran["basis"] == "measured" else None,
                )
            )
    return found


def teach(case: Case, trace: Trace, seconds: float) -> LessonRow | None:
    """What a service would have kept of this case, had it measured it."""
    signature = signature_of(trace, case.batch_size)
    if signature is None:
        return None
    key = (case.name, case.mode, trace.optimizer, trace.torch_version)
    return LessonRow(
        case.name, key, None, case.plan, "pageable", case.batch_size, seconds, signature, case.predicted, ""
    )


def learned(case: Case, trace: Trace, rows: Sequence[LessonRow]) -> Learned:
    near = most_like(rows, trace, nearest_knot(case.batch_size))
    lessons = tuple(lesson for row in near if (lesson := lesson_of(row)) is not None)
    return Experience(lessons, trace).at(case.plan, case.batch_size)


def figures(cases: Sequence[Case], *draws: Sequence[Learned]) -> Document:
    """Error as estimates.json has it: over true, less one, in either direction. Regret is of each draw by itself, as
    a service has heard one of them.

    draws: corrections, one a case; several where what taught was drawn several times."""
    pairs = [(case, one) for corrections in draws for case, one in zip(cases, corrections, strict=True)]
    ratios = [math.log(corrected(case, one) / case.truth) for case, one in pairs]
    errors = sorted(math.expm1(abs(ratio)) for ratio in ratios)
    spreads = [one.spread(case.spread) if one.weight else case.spread for case, one in pairs]
    return {
        "median_error": median(errors),
        "p90_error": errors[min(len(errors) - 1, int(0.9 * len(errors)))],
        "interval_holds": mean(abs(ratio) <= spread for ratio, spread in zip(ratios, spreads, strict=True)),
        "spread": median(spreads),
        "regret": mean(regret(cases, list(map(corrected, cases, corrections))) for corrections in draws),
        "estimates": len(errors),
    }


def corrected(case: Case, one: Learned) -> float:
    """Seconds."""
    return case.predicted * math.exp(one.log_ratio)


def regret(cases: Sequence[Case], told: Sequence[float]) -> float:
    """Mean share that the plan with the least estimate takes longer than the best one."""
    groups: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for case, seconds in zip(cases, told, strict=True):
        groups.setdefault((case.name, case.batch_size), []).append((seconds, case.truth))
    return mean(min(rows)[1] / min(true for _, true in rows) - 1 for rows in groups.values())


def evaluate(cases: Sequence[Case], traces: dict[str, Trace]) -> Document:
    names = sorted({case.name for case in cases})
    family = {case.name: case.family for case in cases}
    draw = random.Random(0)
    taught = {
        "truth": [row for case in cases if (row := teach(case, traces[case.name], case.truth))],
        "quick": [row for case in cases if case.quick and (row := teach(case, traces[case.name], case.quick))],
    }

    def taught_by(rows: Sequence[LessonRow], allowed: dict[str, set[str]]) -> list[Learned]:
        of_name = {name: [row for row in rows if row.workload_key in allowed[name]] for name in names}
        return [learned(case, traces[case.name], of_name[case.name]) for case in cases]

    table: Document = {"nothing learned": figures(cases, [Learned()] * len(cases))}
    for teacher, rows in taught.items():
        others = {name: set(names) - twins(name) for name in names}
        strangers = {name: {other for other in others[name] if family[other] != family[name]} for name in names}
        table[f"every other model, by {teacher}"] = figures(cases, taught_by(rows, others))
        table[f"other families alone, by {teacher}"] = figures(cases, taught_by(rows, strangers))
        for count in (3, 10):
            draws: list[list[Learned]] = []
            for _ in range(DRAWS):
                few = {name: set(draw.sample(sorted(others[name]), min(count, len(others[name])))) for name in names}
                draws.append(taught_by(rows, few))
            table[f"{count} models by chance, by {teacher}"] = figures(cases, *draws)
    return table


async def make_traces(names: set[str], folder: Path) -> dict[str, Trace]:
    async with Crosspoint(Settings.from_environment(data_dir=folder)) as crosspoint:
        return {row.name: await crosspoint.trace(row.workload()) for row in WORKLOADS if row.name in names}


def describe(table: Document) -> str:
    lines = [
        "| taught by | median error | 90th percentile | interval holds | half its width | mean regret |",
        "| --- " * 6 + "|",
    ]
    for name, row in table.items():
        values = ("median_error", "p90_error", "interval_holds", "spread", "regret")
        lines.append(f"| {name} | " + " | ".join(f"{row[value]:.1%}" for value in values) + " |")
    return "\n".join(lines)


def newest_rows() -> Path:
    return max(RESULTS.glob("*/estimates.json"), key=lambda path: path.parent.name)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, and write it where that is asked. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.likeness", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=Path, help="a result of benchmarks.estimates; the newest when left out")
    parser.add_argument("--data", type=Path, help="a folder whose store keeps the traces; a new one when left out")
    parser.add_argument("--output", type=output_file, help="where to write the table as JSON")
    chosen = parser.parse_args(arguments)
    document = json.loads((chosen.rows or newest_rows()).read_text(encoding="utf-8"))
    cases = read_cases(document["rows"])
    with tempfile.TemporaryDirectory() as folder:
        traces = asyncio.run(make_traces({case.name for case in cases}, chosen.data or Path(folder)))
    table = evaluate([case for case in cases if case.name in traces], traces)
    sys.stdout.write(describe(table) + "\n")
    if chosen.output is not None:
        result = {"rows_measured_at": document.get("measured_at"), "fingerprint": document.get("fingerprint")}
        chosen.output.write_text(json.dumps({**result, "table": table}, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
