"""Which operations are told too long or too short: those of whole steps, clocked one by one beside their prices.

python -m benchmarks.operations                      every workload of benchmarks.workloads: a quarter of an hour
python -m benchmarks.operations --only vit gru       some of them
python -m benchmarks.operations --batch-sizes 1 2    at these batches, not at each model's own
python -m benchmarks.operations --unusual            small networks of layers that few have (unusual_models)
python -m benchmarks.operations --profile FILE …     by calibrations that were kept (exported profiles), not a new one

Nothing here judges estimates, as benchmarks.estimates does: it shows where their errors come from, and so what to mend
next. Each plan runs in a fresh process, its operations clocked as a calibration clocks those of its micro-networks.
A step is told as the sum of its operations, of what lies between them and of page faults; all are told apart.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from app.advisor.operation_prices.context_prices import ContextPrices
from app.advisor.operation_prices.surroundings import kernel_of, surroundings
from app.advisor.plans import candidate_plans
from app.advisor.request import Request
from app.advisor.time_model.features import CLASSES, features_of_context
from app.advisor.time_model.pooled import pool
from app.advisor.time_model.predicted import PlanModel, PredictedTime, model_of_plan, predict
from app.service import Crosspoint
from app.settings import Settings
from benchmarks.clocked_step import Clocked, clock_step
from benchmarks.machine import read_machine
from benchmarks.output import output_file
from benchmarks.workloads import UNUSUAL, WORKLOADS, Row
from probes.context import Context
from probes.microtrain.processes import fresh_processes
from probes.microtrain.timing import significant
from probes.profile import Profile, parse_profile
from probes.trace import Trace
from probes.workload.description import Plan

RESULTS = Path(__file__).parent / "results"
SECONDS = 1.0  # of one plan at one batch size
TELLING_SHARE = 0.003  # of the step: operations of which less is wrong do not count
KEPT = 12  # of a step's wrong operations, in the document
SHOWN = 25
Document = dict[str, Any]
Say = Callable[[str], None]


class Told(NamedTuple):
    """What prices one plan of a model: the profile's model of the plan, and the trace's prediction from it."""

    model: PlanModel
    predicted: PredictedTime

    def describe(self, clocked: Clocked) -> Document:
        """What was clocked and timed, all in seconds, beside what is told of it."""
        context, prices = clocked.context, self.model.prices.context
        assert prices is not None
        heavy, light, between, _, _ = features_of_context(context, prices)
        return {
            "mode": context.mode,
            "batch_size": context.batch_size,
            "plan": context.plan.label,
            "step": clocked.step,
            "clocked": context.seconds,
            "operations": heavy + light,
            "between": between,
            "page faults": self.model.prices.fault_seconds(clocked.page_faults),
            "told": self.predicted.at(context.batch_size, "resident").median,
            "page faults told": self.predicted.curve.at(context.batch_size)[CLASSES.index("faults")],
            "wrong": wrong_operations(context, prices),
        }


def told_by(profile: Profile, trace: Trace, plan: Plan) -> Told | None:
    """None where the profile has no operations of this plan."""
    model, predicted = model_of_plan(profile, plan, trace.mode), predict(profile, plan, trace, None)
    if model is None or predicted is None or model.prices.context is None:
        return None
    return Told(model, predicted)


def wrong_operations(context: Context, prices: ContextPrices) -> list[Document]:
    """Operations of whose price a step is TELLING_SHARE too long or too short at least, the worst first."""
    footprint, often = surroundings((cost.operation, cost.times) for cost in context.costs)
    rows = []
    for operation, times, seconds, _ in context.costs:
        told = prices.seconds(operation, footprint, often[kernel_of(operation)])
        if abs(told - seconds) * times >= TELLING_SHARE * context.seconds:
            rows.append({**operation._asdict(), "times": times, "seconds": seconds, "told": told})
    return sorted(rows, key=lambda row: -abs(row["told"] - row["seconds"]) * row["times"])


def make_table(steps: Sequence[Document]) -> Document:
    """by plan: medians over steps of what was told over what was measured. by operation: of all steps of that mode,
    how much of a step its price is off by on average, in either direction and all in all; in how many it is."""
    plans = defaultdict(list)
    modes = defaultdict(list)
    for step in steps:
        plans[f"{step['plan']}, {step['mode']}"].append(step)
        modes[step["mode"]].append(step)
    return {
        "by plan": {name: _told_over_measured(plans[name]) for name in sorted(plans)},
        "by operation": [row for mode in sorted(modes) for row in _by_operation(mode, modes[mode])],
    }


def _told_over_measured(steps: Sequence[Document]) -> Document:
    parts = ("operations", "between", "page faults")
    return {
        "steps": len(steps),
        "operations over clocked": median(step["operations"] / step["clocked"] for step in steps),
        "parts over step": median(sum(step[part] for part in parts) / step["step"] for step in steps),
        "told over step": median(step["told"] / step["step"] for step in steps if step["told"] is not None),
    }


def _by_operation(mode: str, steps: Sequence[Document]) -> list[Document]:
    shares: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for step in steps:
        of_step: dict[tuple[str, ...], float] = defaultdict(float)
        for wrong in step["wrong"]:
            operation = (wrong["name"], wrong["variant"], wrong["dtype"], step["plan"])
            of_step[operation] += (wrong["told"] - wrong["seconds"]) * wrong["times"] / step["clocked"]
        for kernel, share in of_step.items():
            shares[kernel].append(share)
    rows = [
        {
            "mode": mode,
            **dict(zip(("operation", "variant", "dtype", "plan"), kernel, strict=True)),
            "off by": sum(map(abs, found)) / len(steps),
            "all in all": sum(found) / len(steps),
            "steps": len(found),
        }
        for kernel, found in shares.items()
    ]
    return sorted(rows, key=lambda row: -row["off by"])


def describe_table(table: Document) -> str:
    head = ["told over measured, medians", "operations", "with what lies between and page faults", "of the trace"]
    lines = [_line(head), _line(["---"] * len(head))]
    for name, row in table["by plan"].items():
        values = (row["operations over clocked"], row["parts over step"], row["told over step"])
        lines.append(_line([name, *(f"{value:.2f}" for value in values)]))
    head = ["operation", "plan", "steps", "of a step", "all in all"]
    lines += ["", _line(head), _line(["---"] * len(head))]
    for row in sorted(table["by operation"], key=lambda row: -row["off by"])[:SHOWN]:
        name = " ".join(filter(None, (row["operation"], row["variant"], row["dtype"])))
        shares = (f"{row['off by']:.2%}", f"{row['all in all']:+.2%}")
        lines.append(_line([name, f"{row['plan']}, {row['mode']}", str(row["steps"]), *shares]))
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


async def run(rows: Sequence[Row], profiles: Sequence[Profile], seconds: float, folder: Path, say: Say) -> Document:
    """The document that is kept. profiles: calibrations that are pooled; a new one is made where there is none."""
    async with Crosspoint(Settings.from_environment(data_dir=folder, learning=False)) as crosspoint:
        survey = await crosspoint.survey()
        if not profiles:
            say("== calibrating")
        profile = pool(profiles) if profiles else await crosspoint.calibrate("full")
        steps: list[Document] = []
        failed: dict[str, str] = {}
        for row in rows:
            try:
                workload = row.workload()
                plans = [plan for plan in candidate_plans(survey, Request(workload)) if plan.is_cpu]
                trace = await crosspoint.trace(workload)
                told = [found for plan in plans if (found := told_by(profile, trace, plan)) is not None]
                for size, of_plan in product(row.batch_sizes, told):
                    work = (row.name, row.workload(size), of_plan.model.plan, seconds)
                    clocked = await asyncio.to_thread(fresh_processes.run_fresh, clock_step, work, lambda: None)
                    steps.append({"name": row.name, **of_plan.describe(clocked)})
                say(row.name)
            except Exception as error:  # noqa: BLE001 - a miss is shown, not dropped
                failed[row.name] = f"{type(error).__name__}: {error}"
                say(f"{row.name}: {failed[row.name]}")
        fresh_processes.end()
    return {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        **read_machine(),
        "calibrated_at": [each.created_at for each in profiles or (profile,)],
        "seconds": seconds,
        "failed": failed,
        "table": make_table(steps),
        "steps": [{**step, "wrong": step["wrong"][:KEPT]} for step in steps],
    }


def _shortened(value: Any) -> Any:
    """Numbers to four digits."""
    if isinstance(value, dict):
        return {key: _shortened(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_shortened(each) for each in value]
    return significant(value, 4) if isinstance(value, float) else value


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print the table and write it with every step. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.operations", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[], help="models of benchmarks.workloads")
    parser.add_argument("--batch-sizes", type=int, nargs="+", metavar="N", help="in place of each model's own")
    parser.add_argument("--unusual", action="store_true", help="models of benchmarks.unusual_models instead")
    parser.add_argument("--profile", type=Path, nargs="+", default=[], help="exported calibrations of this machine")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of one plan at one batch size")
    parser.add_argument("--output", type=output_file, help="operations.json or unusual.json of the results, if not set")
    chosen = parser.parse_args(arguments)
    models = UNUSUAL if chosen.unusual else WORKLOADS
    output = chosen.output or RESULTS / ("unusual.json" if chosen.unusual else "operations.json")
    if unknown := set(chosen.only) - {row.name for row in models}:
        parser.error(f"{', '.join(sorted(unknown))}: no such model; there are {', '.join(row.name for row in models)}")

    def say(line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    rows = [row for row in models if not chosen.only or row.name in chosen.only]
    if chosen.batch_sizes is not None:
        rows = [row._replace(batch_sizes=tuple(chosen.batch_sizes)) for row in rows]
    profiles = [parse_profile(path.read_bytes()) for path in chosen.profile]
    with tempfile.TemporaryDirectory() as folder:
        document = asyncio.run(run(rows, profiles, chosen.seconds, Path(folder), say))
    output.write_text(json.dumps(_shortened(document), separators=(",", ":")) + "\n", encoding="utf-8")
    say(describe_table(document["table"]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
