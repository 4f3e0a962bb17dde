"""How good are the estimates: step times that `instant` and `quick` tell, against long interleaved measurements.

python -m benchmarks.estimates                     every workload of benchmarks.workloads: half an hour on two cores
python -m benchmarks.estimates --workloads 4 --seconds 2
python -m benchmarks.estimates --truth FILE        asks anew, against the truth of an earlier result
python -m benchmarks.estimates --truth FILE --instant        the same, with that result's answers of `quick`

`instant` is asked for every batch size before anything of that model was measured, then `quick` at the largest, and
only then every plan runs for long in a process of its own. Beside them, from the same profile: a roofline, and the
plain sum of operations timed alone. Every row is kept raw; benchmarks.estimate_table makes figures of them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from app.advisor.features import features_at
from app.advisor.options import OUT_OF_TIME
from app.advisor.plans import candidate_plans
from app.advisor.prices import Prices, prices_for
from app.advisor.recommendation import Recommendation
from app.advisor.request import Request
from app.service import Crosspoint
from app.settings import Settings
from benchmarks.decisions import default_plan
from benchmarks.estimate_table import describe_table, make_table
from benchmarks.workloads import WORKLOADS, Row
from probes.measurement import Measurement
from probes.profile import Profile
from probes.trace import Trace
from probes.workload.description import Plan, Workload

RESULTS = Path(__file__).parent / "results"
Document = dict[str, Any]
Say = Callable[[str], None]


def told(answer: Recommendation) -> Document:
    """What an answer says of each plan, and which it names."""
    options = {
        option.plan.label: {
            "median": option.step_seconds.median,
            "low": option.step_seconds.low,
            "high": option.step_seconds.high,
            "basis": option.basis,
        }
        for option in answer.options
        if option.step_seconds is not None
    }
    recommended = answer.recommended.label if answer.recommended is not None else None
    return {"recommended": recommended, "confidence": answer.confidence, "options": options}


@dataclass
class Bench:
    """One store, one profile; every workload in turn."""

    crosspoint: Crosspoint
    profile: Profile
    seconds: float
    say: Say
    earlier: dict[tuple[str, int], Document]  # rows of another run by name and batch size
    only_instant: bool

    async def rows(self, row: Row) -> list[Document]:
        """One a batch size. A model that cannot be traced or run has an `error` instead of figures."""
        workloads = [row.workload(size) for size in row.batch_sizes]
        try:
            instant = [told(await self._ask(workload, "instant")) for workload in workloads]
            quick = {workload.batch_size: await self._quick(row, workload) for workload in workloads[-1:]}
            return [
                await self._row(row, workload, answer, quick.get(workload.batch_size))
                for workload, answer in zip(workloads, instant, strict=True)
            ]
        except Exception as error:  # noqa: BLE001 - a miss is shown, not dropped
            self.say(f"{row.name}: {error}")
            return [{"name": row.name, "family": row.family, "error": f"{type(error).__name__}: {error}"}]

    async def _quick(self, row: Row, workload: Workload) -> Document | None:
        known = self.earlier.get((row.name, workload.batch_size))
        return known["quick"] if known is not None and self.only_instant else told(await self._ask(workload, "quick"))

    async def _ask(self, workload: Workload, effort: str) -> Recommendation:
        return await self.crosspoint.recommend(Request(workload, effort=effort))  # type: ignore[arg-type]

    async def _row(self, row: Row, workload: Workload, instant: Document, quick: Document | None) -> Document:
        survey = await self.crosspoint.survey()
        plans = candidate_plans(survey, Request(workload))
        trace = await self.crosspoint.trace(workload)
        known = self.earlier.get((row.name, workload.batch_size))
        document = {
            "name": row.name,
            "family": row.family,
            "mode": workload.mode,
            "optimizer": workload.optimizer,
            "batch_size": workload.batch_size,
            "truth": known["truth"] if known is not None else await self._truth(workload, plans),
            "default": default_plan(survey, plans).label,
            "instant": instant,
            "quick": quick,
            "baselines": {plan.label: baselines(self.profile, plan, trace, workload.batch_size) for plan in plans},
            "shares": shares(self.profile, trace, workload.batch_size),
        }
        self.say(describe_row(document))
        return document

    async def _truth(self, workload: Workload, plans: Sequence[Plan]) -> Document:
        """Where the time did not do for every plan, again with twice and four times as much."""
        rows: list[Measurement] = []
        for patience in (1, 2, 4):
            rows = await self.crosspoint.measure(
                Request(workload), seconds=patience * self.seconds, plans=plans, batch_sizes=(workload.batch_size,)
            )
            if not any(OUT_OF_TIME in (row.reason or "").lower() for row in rows):
                break
        return {
            row.plan.label: {
                "median": row.step.median,
                "low": row.step.low,
                "high": row.step.high,
                "samples": len(row.step.samples),
                "process_bytes": row.memory.process_bytes if row.memory else None,
            }
            for row in rows
            if row.outcome == "ok" and row.step is not None
        }


def baselines(profile: Profile, plan: Plan, trace: Trace, batch_size: int) -> Document:
    """Seconds by the rules of thumb, from the figures of the same profile; None where it has none of the plan."""
    prices = prices_for(profile, plan, trace.mode)
    if prices is None:
        return {"roofline": None, "operations alone": None}
    alone = Prices(prices.plan, prices.dispatch, prices.arithmetic, prices.moving, prices.optimizer, prices.work)
    return {
        "roofline": roofline(profile, plan, trace, batch_size),
        "operations alone": sum(features_at(trace, alone, batch_size)),
    }


def roofline(profile: Profile, plan: Plan, trace: Trace, batch_size: int) -> float:
    """Every operation at the best rate or the best bandwidth measured, whichever is longer."""
    points = [point for point in profile.points if point.plan.key == plan.key]
    rate = max(point.flops / point.seconds.median for point in points if point.constant == "matmul")
    bandwidth = max(point.bytes / point.seconds.median for point in points if point.constant == "bandwidth")
    total = 0.0
    for operation in trace.operations_under(plan.precision):
        if operation.kind != "view":
            moved = operation.read_bytes.at(batch_size) + operation.written_bytes.at(batch_size)
            total += operation.count * max(operation.flops.at(batch_size) / rate, moved / bandwidth)
    return total


def shares(profile: Profile, trace: Trace, batch_size: int) -> Document:
    """Of the estimated step in fp32 on one thread, by class of operation; empty without a profile of it."""
    prices = prices_for(profile, Plan("cpu", "fp32", 1), trace.mode)
    if prices is None or prices.context is None:
        return {}
    parts = features_at(trace, prices, batch_size)
    names = ("arithmetic", "light", "between", "optimizer")
    return {name: part / sum(parts) for name, part in zip(names, parts, strict=True)}


def describe_row(row: Document) -> str:
    """One readable line: the best plan, and what the answers said of it."""
    truth = row["truth"]
    if not truth:
        return f"{row['name']}, batch {row['batch_size']}: nothing ran"
    best = min(truth, key=lambda label: truth[label]["median"])
    parts = [f"{row['name']}, batch {row['batch_size']}; best {best}, {truth[best]['median'] * 1e3:.3g} ms"]
    for adviser in ("instant", "quick"):
        if row[adviser] is not None:
            said = row[adviser]["options"].get(best)
            ratio = f"{said['median'] / truth[best]['median']:.2f}" if said else "nothing"
            parts.append(f"{adviser} named {row[adviser]['recommended']}, said {ratio} of it")
    return "; ".join(parts)


async def run_estimates(
    seconds: float,
    rows: Sequence[Row],
    data_dir: Path,
    say: Say,
    earlier: Document | None = None,
    only_instant: bool = False,
) -> tuple[Document, Profile]:
    """The document that is kept, and the profile that the estimates came from. earlier: another run's document."""
    known = {(row["name"], row["batch_size"]): row for row in (earlier or {}).get("rows", ()) if row.get("truth")}
    async with Crosspoint(Settings.from_environment(data_dir=data_dir, learning=False)) as crosspoint:
        say("calibrating")
        profile = await crosspoint.calibrate("full")
        bench = Bench(crosspoint, profile, seconds, say, known, only_instant)
        found = [document for row in rows for document in await bench.rows(row)]
        survey = await crosspoint.survey()
    return {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "truth_measured_at": (earlier or {}).get("truth_measured_at") or (earlier or {}).get("measured_at"),
        "machine": profile.machine,
        "software": {"python": platform.python_version(), **profile.software},
        "fingerprint": survey.fingerprint,
        "noise": profile.noise,
        "truth_seconds_a_batch": (earlier or {}).get("truth_seconds_a_batch", seconds),
        "table": make_table(found),
        "rows": found,
    }, profile


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print a line a batch size, and write the document and its profile. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.estimates", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=8.0, help="truth of one batch size, all plans together")
    parser.add_argument("--workloads", type=int, default=len(WORKLOADS), help="how many of the workloads")
    parser.add_argument("--truth", type=Path, help="an earlier result whose truth is taken")
    parser.add_argument("--instant", action="store_true", help="take its answers of quick as well")
    parser.add_argument("--output", type=Path, default=RESULTS / "estimates.json")
    chosen = parser.parse_args(arguments)

    def say(line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    with tempfile.TemporaryDirectory() as folder:  # a store of its own: nothing measured earlier helps
        earlier = json.loads(chosen.truth.read_text(encoding="utf-8")) if chosen.truth is not None else None
        rows = WORKLOADS[: chosen.workloads]
        work = run_estimates(chosen.seconds, rows, Path(folder), say, earlier, chosen.instant)
        document, profile = asyncio.run(work)
    chosen.output.parent.mkdir(parents=True, exist_ok=True)
    chosen.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    compact = json.dumps(profile.to_json(), separators=(",", ":"))
    chosen.output.with_name("estimates_profile.json").write_text(compact + "\n", encoding="utf-8")
    say(describe_table(document["table"]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
