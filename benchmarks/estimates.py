"""How good are the estimates: step times that `instant` and `quick` tell, against long interleaved measurements.

python -m benchmarks.estimates                     every workload of benchmarks.workloads: 100 minutes on two cores
python -m benchmarks.estimates --workloads 4 --seconds 1 --calibrations 1 --at-first 1

A shared machine is another one ten minutes later, so what is compared is measured close together. The workloads come in
blocks. Each block begins with a calibration, the first with two, five minutes apart, as a service makes them that has
just started; `instant` answers from the profile, which holds it and those before it; then, model by model, every plan
runs in a fresh process of its own, in turns with the others (benchmarks.truth), and again in another; `quick` is asked
at the largest batch, and every plan runs in two more. Truth is the median of a plan's processes, each a fork of another
origin: forks of one have their addresses in common. `quick` knows the model's trace, as it does after an `instant`, and
nothing of the truth; `instant` knows nothing of either. What each calibration alone would have told stands beside. A
run that is broken off leaves what it measured in a file whose name ends in .unfinished.json.

Also beside, from the block's profile: a roofline, and the plain sum of operations timed alone. Every row is kept raw;
benchmarks.estimate_table makes figures of them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from app import advisor
from app.advisor.plans import candidate_plans
from app.advisor.recommendation import Recommendation
from app.advisor.request import Request
from app.service import Crosspoint
from app.settings import Settings
from app.upkeep import AGAIN_SECONDS
from benchmarks.decisions import default_label, default_plan
from benchmarks.estimate_table import describe_table, make_table
from benchmarks.output import Unfinished, output_file
from benchmarks.rules_of_thumb import baselines, shares
from benchmarks.truth import Truth, learn_paces, measure_plans
from benchmarks.workloads import WORKLOADS, Row
from probes.measurement import Measurement
from probes.microtrain.processes import fresh_processes
from probes.profile import Profile
from probes.workload.description import Workload

RESULTS = Path(__file__).parent / "results"
CALIBRATIONS = 4  # as many blocks
AT_FIRST = 2  # before the first block: a service calibrates again within its first minutes
PROCESSES = 4  # a plan and batch size; half of them before `quick`
SECONDS = 1.25  # of a batch size in one process a plan, at least, for all plans together
Document = dict[str, Any]
Say = Callable[[str], None]
Keep = Callable[[list[Document]], None]


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
    """One model at one batch size. block: the place, from 0, of the last calibration before it; instant: by the
    profile after each calibration; alone: by each calibration alone. processes: by plan, what each measured."""

    row: Row
    workload: Workload
    block: int
    instant: list[Document] = field(default_factory=list)
    alone: list[Document] = field(default_factory=list)
    quick: Document | None = None
    error: str | None = None
    processes: dict[str, list[Measurement]] = field(default_factory=dict)


@dataclass
class Bench:
    """calibrating: a store that nothing but calibrations ever came into, for `instant`. asked: one for `quick`.
    measuring: another, for the truth. None learns from other models. keep: told, after each model, all that was
    measured so far. until: on time.monotonic, when no further model is begun. at_first: calibrations before the first
    block, pause seconds apart."""

    calibrating: Crosspoint
    asked: Crosspoint
    measuring: Crosspoint
    seconds: float
    processes: int
    say: Say
    keep: Keep
    until: float
    at_first: int = 1
    pause: float = AGAIN_SECONDS[0]
    profiles: list[Profile] = field(default_factory=list)
    calibrations: list[Profile] = field(default_factory=list)

    async def rows(self, rows: Sequence[Row], calibrations: int) -> list[Document]:
        """One a batch size. A model that cannot be traced or run has an `error` instead of figures."""
        blocks = split(rows, calibrations)
        cases = [
            Case(row, row.workload(size), block)
            for block, found in enumerate(blocks, self.at_first - 1)
            for row in found
            for size in row.batch_sizes
        ]
        for block, found in enumerate(blocks, self.at_first - 1):
            if not self.profiles:
                await self._calibrate_at_first(cases)
            elif time.monotonic() < self.until:
                await self._calibrate(cases)
            for row in found:
                await self._compare_in_time([case for case in cases if case.block == block and case.row is row])
                self.keep([measured(case) for case in cases if case.processes])
        return [await self._told(case) for case in cases]

    async def _compare_in_time(self, cases: Sequence[Case]) -> None:
        if time.monotonic() < self.until:
            await self._compare(cases)
            return
        for case in cases:
            case.error = case.error or "not begun: the time was over"

    async def _calibrate_at_first(self, cases: Sequence[Case]) -> None:
        await self._calibrate(cases)
        for _ in range(1, self.at_first):
            await asyncio.sleep(self.pause)
            await self._calibrate(cases)

    async def _calibrate(self, cases: Sequence[Case]) -> None:
        self.say("== calibrating")
        profile = await self.calibrating.calibrate("full")
        await self.asked.store.keep_profile(profile)
        self.profiles.append(profile)
        self.calibrations += await self.calibrating.store.calibrations(profile.name, profile.fingerprint, 1)
        learn_paces(self.calibrations[-1:])
        await self._each(cases, self._ask_instant)

    async def _compare(self, cases: Sequence[Case]) -> None:
        """Batch sizes of one model."""
        for number in range(self.processes):
            if number == self.processes // 2:
                await self._each(cases, self._ask_quick)
            fresh_processes.prepare(for_configs=any(case.workload.model.kind == "huggingface" for case in cases))
            await self._each(cases, self._run)
            # The next have another origin, and what these computed is not taken for others' load.
            fresh_processes.end()
        for case in cases:
            self.say(describe_row(measured(case)))

    async def _told(self, case: Case) -> Document:
        """A row that cannot be written costs the others nothing: an hour of measuring lies behind them."""
        try:
            return await self._document(case)
        except Exception as error:  # noqa: BLE001 - a miss is shown, not dropped
            said = f"{type(error).__name__}: {error}"
            self.say(f"{case.row.name}: {said}")
            return {**measured(case), "error": said}

    async def _each(self, cases: Sequence[Case], work: Callable[[Case], Awaitable[None]]) -> None:
        for case in cases:
            if case.error is None:
                try:
                    await work(case)
                except Exception as error:  # noqa: BLE001 - a miss is shown, not dropped
                    case.error = f"{type(error).__name__}: {error}"
                    self.say(f"{case.row.name}: {case.error}")

    async def _ask_instant(self, case: Case) -> None:
        answer = await self.calibrating.recommend(Request(case.workload, effort="instant"))
        case.instant.append(told(answer))
        survey, trace = await self.calibrating.survey(), await self.calibrating.trace(case.workload)
        request = Request(case.workload, effort="instant")
        case.alone.append(told(advisor.recommend(survey, self.calibrations[-1], trace, (), request)))

    async def _ask_quick(self, case: Case) -> None:
        if case.workload.batch_size == case.row.batch_sizes[-1]:
            await self.asked.trace(case.workload)
            case.quick = told(await self.asked.recommend(Request(case.workload, effort="quick")))

    async def _run(self, case: Case) -> None:
        """One more process a plan."""
        plans = candidate_plans(await self.measuring.survey(), Request(case.workload))
        for row in await measure_plans(self.measuring, case.workload, plans, self.seconds):
            if row.outcome == "ok" and row.step is not None:
                case.processes.setdefault(row.plan.label, []).append(row)
            else:
                self.say(f"{case.row.name}, batch {row.batch_size}: {row.reason}")

    async def _document(self, case: Case) -> Document:
        if case.error is not None or len(case.instant) != len(self.profiles):
            return {"name": case.row.name, "family": case.row.family, "error": case.error}
        survey = await self.asked.survey()
        plans = candidate_plans(survey, Request(case.workload))
        trace = await self.calibrating.trace(case.workload)
        profile, size = self.profiles[case.block], case.workload.batch_size
        row = measured(case)
        times = {label: truth["median"] for label, truth in row["truth"].items()}
        return {
            **row,
            "default": default_label(default_plan(survey, plans), times, trace),
            "baselines": {plan.label: baselines(profile, plan, trace, size) for plan in plans},
            "shares": shares(profile, trace, size),
        }


def split(rows: Sequence[Row], blocks: int) -> list[Sequence[Row]]:
    """As they come, in so many blocks of about as many batch sizes each."""
    total, passed = sum(len(row.batch_sizes) for row in rows), 0
    found: list[list[Row]] = [[] for _ in range(blocks)]
    for row in rows:
        found[passed * blocks // total].append(row)
        passed += len(row.batch_sizes)
    return [block for block in found if block]


def measured(case: Case) -> Document:
    """What was told and what was true, without what is reckoned beside them."""
    return {
        "name": case.row.name,
        "family": case.row.family,
        "mode": case.workload.mode,
        "optimizer": case.workload.optimizer,
        "batch_size": case.workload.batch_size,
        "block": case.block,
        "truth": true_times(case.processes),
        "instant": case.instant[case.block] if case.block < len(case.instant) else None,
        "instant of each calibration alone": case.alone,
        "quick": case.quick,
    }


def true_times(processes: Mapping[str, Sequence[Measurement]]) -> Document:
    """By plan's label: the median of its processes' medians, the least and the most of them, and each; of each, how
    many blocks met slow cores (of which the medians are not), how many times as long those took, and how many pages a
    step found fresh. Processes that met no calm block count only where all are such."""
    truth: Document = {}
    for label, all_rows in processes.items():
        rows = [row for row in all_rows if not row.is_reckoned] or all_rows
        steps = [row.step for row in rows if row.step is not None]
        medians = [step.median for step in steps]
        memories = (row.memory.process_bytes for row in rows if row.memory)
        truth[label] = {
            "median": statistics.median(medians),
            "low": min(medians),
            "high": max(medians),
            "processes": medians,
            "reckoned": rows[0].is_reckoned,
            "slow_share": [row.slow_share for row in rows],
            "slowdown": [row.slowdown for row in rows],
            "faults": [row.faults if isinstance(row, Truth) else None for row in rows],
            "samples": sum(len(step.samples) for step in steps),
            "process_bytes": next((memory for memory in memories if memory is not None), None),
        }
    return truth


def profile_file(output: Path, number: int) -> Path:
    """Where the run that wrote this keeps its calibrations, from 1 on."""
    return output.with_name(f"{output.stem}_profile_{number}.json")


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
    keep: Keep,
    *,
    processes: int,
    calibrations: int,
    minutes: float = math.inf,
    at_first: int = 1,
) -> tuple[Document, list[Profile]]:
    """The document that is kept, and the calibrations that the estimates came from: at_first of them before the first
    block, one before each other."""
    names = ("calibrating", "asked", "truth")
    settings = [Settings.from_environment(data_dir=folder / name, learning=False) for name in names]
    async with (
        Crosspoint(settings[0]) as calibrating,
        Crosspoint(settings[1]) as asked,
        Crosspoint(settings[2]) as measuring,
    ):
        until = time.monotonic() + 60 * minutes
        bench = Bench(calibrating, asked, measuring, seconds, processes, say, keep, until, at_first)
        begun = datetime.now(UTC)
        found = await bench.rows(rows, calibrations)
        survey = await asked.survey()
    profile = bench.profiles[0]
    return {
        "begun_at": begun.isoformat(timespec="seconds"),
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": profile.machine,
        "software": {"python": platform.python_version(), **profile.software},
        "fingerprint": survey.fingerprint,
        "noise": [each.noise for each in bench.calibrations],
        "truth_seconds": seconds,
        "truth_processes": processes,
        "table": make_table(found),
        "rows": found,
    }, bench.calibrations


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print a line a batch size, and write the document and its profiles. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.estimates", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help="of a batch size in one process a plan, at least"
    )
    parser.add_argument(
        "--processes", type=int, default=PROCESSES, help="a plan and batch size, half of them before quick"
    )
    parser.add_argument("--calibrations", type=int, default=CALIBRATIONS, help="as many blocks of workloads")
    parser.add_argument("--at-first", type=int, default=AT_FIRST, help="calibrations before the first of the blocks")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no further model after so many")
    parser.add_argument("--workloads", type=int, default=len(WORKLOADS), help="how many of the workloads")
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[], help="of the workloads those")
    parser.add_argument("--output", type=output_file, default=RESULTS / "estimates.json")
    chosen = parser.parse_args(arguments)
    if unknown := set(chosen.only) - {row.name for row in WORKLOADS}:
        parser.error(f"{', '.join(sorted(unknown))}: no such workload")
    rows = [row for row in WORKLOADS[: chosen.workloads] if not chosen.only or row.name in chosen.only]
    if not rows:
        parser.error(f"none of these is among the first {chosen.workloads} workloads: leave --workloads out")

    def say(line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    unfinished = Unfinished(chosen.output)
    with tempfile.TemporaryDirectory() as folder:  # a store of its own: nothing measured earlier helps
        counts = {
            "processes": max(1, chosen.processes),
            "calibrations": max(1, chosen.calibrations),
            "at_first": max(1, chosen.at_first),
        }
        run = run_estimates(chosen.seconds, rows, Path(folder), say, unfinished.keep, minutes=chosen.minutes, **counts)
        document, profiles = asyncio.run(run)
    chosen.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    for number, profile in enumerate(profiles, 1):
        compact = json.dumps(profile.to_json(), separators=(",", ":"))
        profile_file(chosen.output, number).write_text(compact + "\n", encoding="utf-8")
    unfinished.end()
    say(describe_table(document["table"]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
