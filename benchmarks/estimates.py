"""How good are the estimates: step times that `instant` and `quick` tell, against long interleaved measurements.

python -m benchmarks.estimates                     every workload of benchmarks.workloads: half an hour on two cores
python -m benchmarks.estimates --workloads 4 --seconds 1 --passes 1
python -m benchmarks.estimates --truth FILE        asks anew, against the truth of an earlier result
python -m benchmarks.estimates --truth FILE --answers FILE   the same, with a result's answers of `quick`
python -m benchmarks.estimates --truth FILE --more 1         another pass of truth beside those that it has

`instant` is asked about everything before anything was measured. Then every plan runs in a fresh process of its own,
in turns with the others (benchmarks.truth); so again in further passes over all workloads, and truth is the median of a
plan's processes: two processes differ by their heaps alone, and a neighbour's minute is in one pass only. `quick` is
asked at the largest batch after the first pass, of a store that knows nothing of the truth. Beside them, from the same
profile: a roofline, and the plain sum of operations timed alone. Every row is kept raw; benchmarks.estimate_table makes
figures of them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from app.advisor.features import features_at
from app.advisor.plans import candidate_plans
from app.advisor.prices import Prices, prices_for
from app.advisor.recommendation import Recommendation
from app.advisor.request import Request
from app.service import Crosspoint
from app.settings import Settings
from benchmarks.decisions import default_plan
from benchmarks.estimate_table import describe_table, make_table
from benchmarks.truth import measure_in_turns
from benchmarks.workloads import WORKLOADS, Row
from probes.measurement import Measurement
from probes.microtrain import fresh_processes
from probes.profile import Profile
from probes.trace import Trace
from probes.workload.description import Plan, Workload

RESULTS = Path(__file__).parent / "results"
PASSES = 3
SECONDS = 2.5  # of a batch size in one pass, at least, for all plans together
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
class Case:
    """One model at one batch size. processes: by plan, what each measured."""

    row: Row
    workload: Workload
    instant: Document | None = None
    quick: Document | None = None
    error: str | None = None
    processes: dict[str, list[Measurement]] = field(default_factory=dict)


@dataclass
class Bench:
    """asked: one store, one profile, no learning from other models. measuring: another store, for the truth."""

    asked: Crosspoint
    measuring: Crosspoint
    profile: Profile
    seconds: float
    passes: int
    say: Say
    earlier: dict[tuple[str, int], Document]  # rows of another run by name and batch size
    answers: dict[tuple[str, int], Document]  # rows of a run whose answers of `quick` are taken
    more: int = 0  # passes over what `earlier` knows

    async def rows(self, rows: Sequence[Row]) -> list[Document]:
        """One a batch size. A model that cannot be traced or run has an `error` instead of figures."""
        cases = [Case(row, row.workload(size)) for row in rows for size in row.batch_sizes]
        await self._each(cases, "instant", self._ask_instant)
        for number in range(max(self.passes, self.more)):
            await self._each(cases, f"truth {number + 1}", partial(self._run, number))
            fresh_processes.end()  # or what its forks computed is others' load to the next answer
            if number == 0:
                await self._each(cases, "quick", self._ask_quick)
        return [await self._told(case) for case in cases]

    async def _told(self, case: Case) -> Document:
        """A row that cannot be written costs the others nothing: an hour of measuring lies behind them."""
        try:
            return await self._document(case)
        except Exception as error:  # noqa: BLE001 - a miss is shown, not dropped
            said = f"{type(error).__name__}: {error}"
            self.say(f"{case.row.name}: {said}")
            return {**self._measured(case), "error": said}

    async def _each(self, cases: Sequence[Case], what: str, work: Callable[[Case], Awaitable[None]]) -> None:
        self.say(f"== {what}")
        for case in cases:
            if case.error is None:
                try:
                    await work(case)
                except Exception as error:  # noqa: BLE001 - a miss is shown, not dropped
                    case.error = f"{type(error).__name__}: {error}"
                    self.say(f"{case.row.name}: {case.error}")

    async def _ask_instant(self, case: Case) -> None:
        case.instant = told(await self._ask(case.workload, "instant"))

    async def _ask_quick(self, case: Case) -> None:
        size = case.workload.batch_size
        if size != case.row.batch_sizes[-1]:
            return
        answered = self.answers.get((case.row.name, size))
        if answered is not None and answered.get("quick") is not None:
            case.quick = answered["quick"]
        else:
            case.quick = told(await self._ask(case.workload, "quick"))

    async def _ask(self, workload: Workload, effort: str) -> Recommendation:
        return await self.asked.recommend(Request(workload, effort=effort))  # type: ignore[arg-type]

    def _known(self, case: Case) -> Document | None:
        return self.earlier.get((case.row.name, case.workload.batch_size))

    async def _run(self, number: int, case: Case) -> None:
        """One more process a plan."""
        if number >= (self.passes if self._known(case) is None else self.more):
            return
        for row in await self._measure(case):
            if row.outcome == "ok" and row.step is not None:
                case.processes.setdefault(row.plan.label, []).append(row)
            else:
                self.say(f"{case.row.name}, batch {row.batch_size}: {row.reason}")

    async def _measure(self, case: Case) -> list[Measurement]:
        """Plans on a device all in one process: what computes there does not survive a fork."""
        plans = candidate_plans(await self.measuring.survey(), Request(case.workload))
        on_cpu = [plan for plan in plans if plan.is_cpu]
        others = tuple(plan for plan in plans if not plan.is_cpu)
        found = await asyncio.to_thread(measure_in_turns, case.workload, on_cpu, self.seconds)
        if others:
            request, size = Request(case.workload), case.workload.batch_size
            found += await self.measuring.measure(request, seconds=self.seconds, plans=others, batch_sizes=(size,))
        return found

    async def _document(self, case: Case) -> Document:
        if case.error is not None or case.instant is None:
            return {"name": case.row.name, "family": case.row.family, "error": case.error}
        survey = await self.asked.survey()
        plans = candidate_plans(survey, Request(case.workload))
        trace = await self.asked.trace(case.workload)
        size = case.workload.batch_size
        document = {
            **self._measured(case),
            "default": default_plan(survey, plans).label,
            "baselines": {plan.label: baselines(self.profile, plan, trace, size) for plan in plans},
            "shares": shares(self.profile, trace, size),
        }
        self.say(describe_row(document))
        return document

    def _measured(self, case: Case) -> Document:
        """What was told and what was true, without what is reckoned beside them."""
        known = self._known(case)
        return {
            "name": case.row.name,
            "family": case.row.family,
            "mode": case.workload.mode,
            "optimizer": case.workload.optimizer,
            "batch_size": case.workload.batch_size,
            "truth": true_times(case.processes, known["truth"] if known is not None else {}),
            "instant": case.instant,
            "quick": case.quick,
        }


def true_times(processes: Mapping[str, Sequence[Measurement]], known: Document | None = None) -> Document:
    """By plan's label: the median of its processes' medians, the least and the most of them, and each. known: the same
    of an earlier run, whose processes count as well."""
    known = known or {}
    truth: Document = {}
    for label in dict.fromkeys((*known, *processes)):
        rows, before = processes.get(label, ()), known.get(label, {})
        medians = [*before.get("processes", ()), *(row.step.median for row in rows if row.step is not None)]
        memories = (before.get("process_bytes"), *(row.memory.process_bytes for row in rows if row.memory))
        truth[label] = {
            "median": statistics.median(medians),
            "low": min(medians),
            "high": max(medians),
            "processes": medians,
            "samples": before.get("samples", 0) + sum(len(row.step.samples) for row in rows if row.step is not None),
            "process_bytes": next((memory for memory in memories if memory is not None), None),
        }
    return truth


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


def roofline(profile: Profile, plan: Plan, trace: Trace, batch_size: int) -> float | None:
    """Every operation at the best rate or the best bandwidth measured, whichever is longer; None without either."""
    points = [point for point in profile.points if point.plan.key == plan.key]
    rates = [point.flops / point.seconds.median for point in points if point.constant == "matmul"]
    bandwidths = [point.bytes / point.seconds.median for point in points if point.constant == "bandwidth"]
    if not rates or not bandwidths:
        return None
    rate, bandwidth = max(rates), max(bandwidths)
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
    names = ("arithmetic", "light", "between", "optimizer", "page faults")
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
    folder: Path,
    say: Say,
    *,
    passes: int = PASSES,
    earlier: Document | None = None,
    answers: Document | None = None,
    more: int = 0,
) -> tuple[Document, Profile]:
    """The document that is kept, and the profile that the estimates came from. earlier: another run's document, whose
    truth is taken; answers: one whose answers of `quick` are."""
    known = {key: row for key, row in _by_case(earlier).items() if row.get("truth")}
    settings = [Settings.from_environment(data_dir=folder / name, learning=False) for name in ("asked", "truth")]
    async with Crosspoint(settings[0]) as asked, Crosspoint(settings[1]) as measuring:
        say("calibrating")
        profile = await asked.calibrate("full")
        bench = Bench(asked, measuring, profile, seconds, passes, say, known, _by_case(answers), more)
        found = await bench.rows(rows)
        survey = await asked.survey()
    return {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "truth_measured_at": (earlier or {}).get("truth_measured_at") or (earlier or {}).get("measured_at"),
        "quick_asked_at": (answers or {}).get("measured_at"),
        "machine": profile.machine,
        "software": {"python": platform.python_version(), **profile.software},
        "fingerprint": survey.fingerprint,
        "noise": profile.noise,
        "truth_seconds": (earlier or {}).get("truth_seconds", seconds),
        "truth_processes": (earlier or {}).get("truth_processes", passes) + more,
        "table": make_table(found),
        "rows": found,
    }, profile


def _by_case(document: Document | None) -> dict[tuple[str, int], Document]:
    return {(row["name"], row["batch_size"]): row for row in (document or {}).get("rows", ()) if "batch_size" in row}


def _read(path: Path | None) -> Document | None:
    return None if path is None else json.loads(path.read_text(encoding="utf-8"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print a line a batch size, and write the document and its profile. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.estimates", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of a batch size in a pass, at least")
    parser.add_argument("--passes", type=int, default=PASSES, help="processes a plan and batch size")
    parser.add_argument("--workloads", type=int, default=len(WORKLOADS), help="how many of the workloads")
    parser.add_argument("--truth", type=Path, help="an earlier result whose truth is taken")
    parser.add_argument("--more", type=int, default=0, help="passes of truth beside those of that result")
    parser.add_argument("--answers", type=Path, help="an earlier result whose answers of quick are taken")
    parser.add_argument("--output", type=Path, default=RESULTS / "estimates.json")
    chosen = parser.parse_args(arguments)

    def say(line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    with tempfile.TemporaryDirectory() as folder:  # a store of its own: nothing measured earlier helps
        earlier = _read(chosen.truth)
        rows = WORKLOADS[: chosen.workloads]
        work = run_estimates(
            chosen.seconds,
            rows,
            Path(folder),
            say,
            passes=chosen.passes,
            earlier=earlier,
            answers=_read(chosen.answers),
            more=chosen.more if earlier is not None else 0,
        )
        document, profile = asyncio.run(work)
    chosen.output.parent.mkdir(parents=True, exist_ok=True)
    chosen.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    compact = json.dumps(profile.to_json(), separators=(",", ":"))
    chosen.output.with_name("estimates_profile.json").write_text(compact + "\n", encoding="utf-8")
    say(describe_table(document["table"]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
