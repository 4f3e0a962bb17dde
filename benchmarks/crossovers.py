"""Where plans cross: the batch that `instant` and `quick` tell, against one found by bisection with real steps.

python -m benchmarks.crossovers                      eleven models, some half an hour on two cores
python -m benchmarks.crossovers --models 2 --seconds 0.4
python -m benchmarks.crossovers --profile FILE...    this machine's calibrations, earliest first, instead of a new one

`instant` is asked for every model before anything ran, then `quick`, in a store that no truth gets into. Truth: at each
batch size every plan runs in three processes of its own, in turns with the others (benchmarks.truth), in up to seven
where two plans are within a tenth, as two processes of one plan are, or where processes disagree on which is faster.
A coarse ladder of batch sizes is gone up as far as the two plans' own steps are short, whatever was told of them; then
the bracket around each pair's crossover is halved until it is within a factor of 1.5. Batches that others contradict
are measured once more (benchmarks.crossovers_again does so for a run of before). The scoring is
benchmarks.crossover_scores; benchmarks.retell_crossovers tells a run's answers again by later code. A run that is
broken off leaves the models it measured in a file whose name ends in .unfinished.json, which
benchmarks.crossover_scores tells like any other.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from app.advisor.plans import candidate_plans
from app.advisor.recommendation import Recommendation
from app.advisor.request import Request
from app.advisor.time_model.pooled import pool
from app.errors import CrosspointError
from app.service import Crosspoint
from app.settings import Settings
from benchmarks.crossover_scores import (
    LEAST_CALM,
    Both,
    Truth,
    describe_scores,
    gain,
    of_calm,
    score,
    sign,
    truth_of,
    wanted,
)
from benchmarks.output import Unfinished, output_file
from benchmarks.truth import learn_paces, measure_plans
from benchmarks.workloads import WORKLOADS, Row
from probes.microtrain.processes import fresh_processes
from probes.profile import Profile, parse_profile
from probes.workload.description import Plan

RESULTS = Path(__file__).parent / "results"
Document = dict[str, Any]
Say = Callable[[str], None]
Keep = Callable[[list[Document]], None]
Pair = tuple[str, str]
# Of five families, with steps short enough at most batches that a bisection takes seconds.
MODELS = (
    "tabular", "digits", "image small", "lstm", "encoder", "vit", "tabular inference", "lstm inference", "dense sgd",
    "signal", "iris",
)  # fmt: skip
LADDER = (1, 8, 64, 512, 4096)
LONGEST_STEP_SECONDS = 0.1  # of a plan at one rung: beyond it none of its pairs goes further up
LEAST_RUNGS = 2  # or there is no bracket
ROUNDS = 3  # of bisection: a factor of eight becomes less than 1.5
# Processes of each plan at a batch size, and where two plans are as close as two processes of one are.
PROCESSES, MOST_PROCESSES, CLOSE = 3, 7, 0.1
LOOKS = 2  # at batches that others contradict, or where hardly a turn met calm cores; minutes apart


@dataclass
class Measured:
    """One model's truth. times: by batch size and plan, each process's median. calm: likewise, whether it met calm
    cores."""

    crosspoint: Crosspoint
    row: Row
    plans: Sequence[Plan]
    seconds: float
    times: dict[int, dict[str, list[float]]] = field(default_factory=dict)
    calm: dict[int, dict[str, list[bool]]] = field(default_factory=dict)

    async def measure(self, size: int, pairs: Sequence[Pair]) -> None:
        """All plans of these pairs in turns, each in a process of its own."""
        labels = {label for pair in pairs for label in pair}
        plans = [plan for plan in self.plans if plan.label in labels]
        rows = await measure_plans(self.crosspoint, self.row.workload(size), plans, self.seconds)
        known = self.times.setdefault(size, {plan.label: [] for plan in self.plans})
        # Of turns of an earlier run nobody may know: they count as long as too few are known to have been calm.
        calm = self.calm.setdefault(size, {label: [False] * len(times) for label, times in known.items()})
        for row in rows:
            if row.outcome == "ok" and row.step is not None:
                known[row.plan.label].append(row.step.median)
                calm[row.plan.label].append(not row.is_reckoned)

    async def bisect(self, pairs: Sequence[Pair]) -> dict[Pair, Truth]:
        reach = await self._climb(pairs)
        await self._narrow(pairs, reach)
        return await self.look_again(pairs)

    async def look_again(self, pairs: Sequence[Pair]) -> dict[Pair, Truth]:
        """At batches that others contradict, and where hardly a turn met calm cores: all processes of a batch run
        within seconds, which may be slow ones. All pairs that ran there, whose plans are compared turn by turn."""
        for _ in range(LOOKS):
            for size in sorted(self._doubted(pairs)):
                await self._settle(size, [pair for pair in pairs if all(self.at(size, pair))])
            sizes = {pair: self._truth(pair).signs for pair in pairs}
            await self._narrow(pairs, {pair: max(ran, default=0) for pair, ran in sizes.items()})
        return self.truths(pairs)

    def _doubted(self, pairs: Sequence[Pair]) -> set[int]:
        contradicted = {size for truth in self.truths(pairs).values() for size in truth.contradicted}
        return contradicted | {
            size for size in self.calm for pair in pairs if all(self.at(size, pair)) and self._is_slow(size, pair)
        }

    def _is_slow(self, size: int, pair: Pair) -> bool:
        first, second = (self.calm[size][label] for label in pair)
        return sum(both == (True, True) for both in zip(first, second, strict=False)) < LEAST_CALM

    def at(self, size: int, pair: Pair) -> Both:
        """What both took in the turns that count."""
        first, second = pair
        times, calm = self.times[size], self.calm.get(size)
        return of_calm(times[first], times[second], None if calm is None else (calm[first], calm[second]))

    def truths(self, pairs: Sequence[Pair]) -> dict[Pair, Truth]:
        return {pair: self._truth(pair) for pair in pairs}

    async def _narrow(self, pairs: Sequence[Pair], reach: Mapping[Pair, int]) -> None:
        """The brackets, by halves."""
        for _ in range(ROUNDS):
            sizes = {found for pair in pairs if (found := wanted(self._truth(pair))) is not None}
            for size in sorted(sizes):
                await self._settle(size, [pair for pair in pairs if size <= reach[pair]])
            if not sizes:
                break

    async def _climb(self, pairs: Sequence[Pair]) -> dict[Pair, int]:
        """Up the ladder, each pair until a step of one of its plans took too long. Returns how far each came."""
        reach = dict.fromkeys(pairs, 0)
        for rung, size in enumerate(LADDER):
            going = [pair for pair in pairs if rung < LEAST_RUNGS or self._is_short(LADDER[rung - 1], pair)]
            if not going:
                break
            await self._settle(size, going)
            reach |= dict.fromkeys(going, size)
        return reach

    def _is_short(self, size: int, pair: Pair) -> bool:
        return all(each and median(each) <= LONGEST_STEP_SECONDS for each in self.at(size, pair))

    async def _settle(self, size: int, pairs: Sequence[Pair]) -> None:
        for _ in range(PROCESSES):
            await self.measure(size, pairs)
        for _ in range(MOST_PROCESSES - PROCESSES):
            if any(is_doubtful(*self.at(size, pair)) for pair in pairs):
                await self.measure(size, pairs)

    def _truth(self, pair: Pair) -> Truth:
        return truth_of({size: self.at(size, pair) for size in self.times})

    def document(self, pair: Pair) -> Document:
        """What is kept of a pair's truth, but for what it says."""
        kept = {"times": self.times, "calm": self.calm}
        return {
            name: {size: [plans[label] for label in pair] for size, plans in sorted(sizes.items())}
            for name, sizes in kept.items()
        }


def is_doubtful(first: Sequence[float], second: Sequence[float]) -> bool:
    """Whether another process of both may change which plan is faster: they are close, or the processes disagree."""
    if not (first and second):
        return False
    disagree = {sign(math.log(mine / other)) for mine, other in zip(first, second, strict=False)} >= {-1, 1}
    return disagree or abs(gain(first, second)) <= math.log1p(CLOSE)


@dataclass
class Bench:
    """asked: the store that answers come from. measuring: another, for the truth. keep: told, after each model, all
    rows so far. until: on time.monotonic, when no further model is begun. measured: by model, what `quick` measured."""

    asked: Crosspoint
    measuring: Crosspoint
    seconds: float
    say: Say
    keep: Keep
    until: float = math.inf
    measured: dict[str, list[Document]] = field(default_factory=dict)

    async def rows(self, models: Sequence[str]) -> list[Document]:
        """One a pair of plans, and one with an `error` for a model that could not be judged."""
        rows = [row for name in models for row in WORKLOADS if row.name == name]
        instant = {row.name: await self.asked.recommend(Request(row.workload())) for row in rows}
        found: list[Document] = []
        for row in rows:
            found += await self._model_in_time(row, instant[row.name])
            self.keep(found)
        return found

    async def _model_in_time(self, row: Row, instant: Recommendation) -> list[Document]:
        if time.monotonic() >= self.until:
            return [{"model": row.name, "error": "not begun: the time was over"}]
        try:
            return await self._model(row, instant)
        except CrosspointError as error:  # a miss is shown, not dropped
            self.say(f"{row.name}: {error}")
            return [{"model": row.name, "error": str(error)}]

    async def _model(self, row: Row, instant: Recommendation) -> list[Document]:
        workload = row.workload(row.batch_sizes[-1])
        quick = await self.asked.recommend(Request(workload, effort="quick"))
        known = await self.asked.measurements(await self.asked.survey(), workload)
        self.measured[row.name] = [each.to_json() for each in known]
        told = {name: crossovers_by_pair(answer) for name, answer in (("instant", instant), ("quick", quick))}
        plans = candidate_plans(await self.measuring.survey(), Request(workload))
        measured = Measured(self.measuring, row, plans, self.seconds)
        truths = await measured.bisect(list(told["instant"]))
        fresh_processes.end()  # or what its forks computed is others' load to the next answer
        return [self._pair(row, pair, told, truth, measured) for pair, truth in truths.items()]

    def _pair(
        self,
        row: Row,
        pair: Pair,
        told: dict[str, dict[Pair, Document]],
        truth: Truth,
        by: Measured,
    ) -> Document:
        document = {
            "model": row.name,
            "family": row.family,
            "mode": row.mode,
            "from": pair[0],
            "to": pair[1],
            "truth": truth.to_json(),
            **by.document(pair),
            **{adviser: answers.get(pair) for adviser, answers in told.items()},
        }
        self.say(describe_row(document))
        return document


def crossovers_by_pair(answer: Recommendation) -> dict[Pair, Document]:
    """Of the way of feeding that was asked for, the pairs that are told whichever plan is recommended."""
    fed = [row for row in answer.crossovers if row.data == answer.workload.data]
    rows = [row for row in fed if not row.to.is_cpu or _differ_in_one(row.start, row.to)]
    names = ("kind", "batch_size", "low", "high", "medians_cross_at", "basis")
    return {(row.start.label, row.to.label): {name: getattr(row, name) for name in names} for row in rows}


def _differ_in_one(first: Plan, second: Plan) -> bool:
    return first.threads == second.threads or first.precision == second.precision


def describe_row(row: Document) -> str:
    """One readable line: what is true, and what was told."""
    parts = [f"{row['model']}: {row['from']} -> {row['to']}: truth {row['truth']['low']} to {row['truth']['high']}"]
    answers = {adviser: row[adviser] for adviser in ("instant", "quick") if row[adviser] is not None}
    parts += [
        f"{adviser} {told['kind']} {told['batch_size'] or ''} (medians {told['medians_cross_at']})"
        for adviser, told in answers.items()
    ]
    return ", ".join(parts)


async def run_crossovers(
    models: Sequence[str],
    seconds: float,
    folder: Path,
    say: Say,
    keep: Keep,
    *,
    calibrations: Sequence[Profile] = (),
    minutes: float = math.inf,
) -> Document:
    """The document that is kept. calibrations: of this machine, the earliest first; none: it is calibrated first.
    minutes: after them no model is begun."""
    until = time.monotonic() + 60 * minutes
    asked = Crosspoint(Settings.from_environment(data_dir=folder / "asked", learning=False))
    measuring = Crosspoint(Settings.from_environment(data_dir=folder / "measuring"))
    async with asked, measuring:
        if not calibrations:
            say("calibrating")
            calibrations = [await asked.calibrate("full")]
        await asked.store.keep_profile(pool(tuple(reversed(calibrations))), calibrations[-1])
        learn_paces(calibrations)
        bench = Bench(asked, measuring, seconds, say, keep, until)
        rows = await bench.rows(models)
    return {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": calibrations[-1].machine,
        "software": {"python": platform.python_version(), **calibrations[-1].software},
        "calibrations": len(calibrations),
        "noise": [each.noise for each in calibrations],
        "seconds_a_batch": seconds,
        "table": score(rows),
        "rows": rows,
        "measured": bench.measured,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print a line a pair and the table, and write the document. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.crossovers", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--seconds", type=float, default=1.2, help="all plans at one batch size")
    parser.add_argument("--models", type=int, default=len(MODELS), help="how many of the models")
    parser.add_argument("--minutes", type=float, default=math.inf, help="no model is begun later")
    parser.add_argument("--profile", type=Path, nargs="+", default=[], help="this machine's, the earliest first")
    parser.add_argument("--output", type=output_file, default=RESULTS / "crossovers.json")
    chosen = parser.parse_args(arguments)

    def say(line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    unfinished = Unfinished(chosen.output)
    with tempfile.TemporaryDirectory() as folder:
        document = asyncio.run(
            run_crossovers(
                MODELS[: chosen.models],
                chosen.seconds,
                Path(folder),
                say,
                unfinished.keep,
                calibrations=[parse_profile(file.read_bytes()) for file in chosen.profile],
                minutes=chosen.minutes,
            )
        )
    chosen.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    unfinished.end()
    say(describe_scores(document["table"]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
