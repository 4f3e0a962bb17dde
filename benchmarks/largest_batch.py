"""The largest batch that fits: what `instant` tells, and how long that takes, against Lightning's batch-size finder.

python -m benchmarks.largest_batch                   six models under 2 GiB, some ten minutes on two cores
python -m benchmarks.largest_batch --models 1 --gibibytes 1

Truth: bisection to within 2 %, three steps of each batch size in a process of its own whose memory is limited. The
finder (pytorch_lightning.tuner, mode binsearch) doubles the batch while three steps run, then bisects and takes 5 %
off, in one process under the same limit; oneDNN's words for out of memory, with which it would end, are translated
into torch's for it. Crosspoint is asked with that limit as the machine's memory, and runs nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

from app.advisor import recommend
from app.advisor.request import Request
from app.labjobs import describe_machine
from app.service import Crosspoint
from app.settings import Settings
from benchmarks.child import run_child
from benchmarks.output import Unfinished, output_file
from benchmarks.workloads import WORKLOADS, Row
from probes.hardware import Survey
from probes.profile import Profile
from probes.workload.description import Plan

RESULTS = Path(__file__).parent / "results"
Document = dict[str, Any]
Say = Callable[[str], None]
Keep = Callable[[list[Document]], None]
Fits = Callable[[int], bool]
# Of six families; what fits lies between tens and thousands of samples.
MODELS = ("image residual", "encoder wide", "bert", "lstm", "gpt2", "resnet")
NARROW = 1.02
STRIDE = 1.25  # of the search for a bracket
CHILD_SECONDS = 900.0
# Threads that wait for each other on a crowded machine should sleep, not spin.
ENVIRONMENT = {"OMP_WAIT_POLICY": "PASSIVE", "HF_HUB_OFFLINE": "1"}


def largest_that_fits(start: int, fits: Fits) -> int:
    """To within 2 %, from a first guess whose goodness does not matter: both sides of the answer are tried. 0: none."""
    low, high = _bracket(max(1, start), fits)
    while high - low > 1 and high > NARROW * low:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _bracket(size: int, fits: Fits) -> tuple[int, int]:
    """One that fits (0: none does), and a larger one that does not."""
    if fits(size):
        while fits(larger := max(size + 1, round(size * STRIDE))):
            size = larger
        return size, larger
    while size > 1:
        smaller = min(size - 1, round(size / STRIDE))
        if fits(smaller):
            return smaller, size
        size = smaller
    return 0, 1


def run_limited(job: Document) -> Document:
    """What it wrote; `{"error": …}` when it died, as under the kernel's own limit it would, or was not done in time."""
    return run_child("benchmarks.largest_batch_child", job, CHILD_SECONDS, ENVIRONMENT)


def is_seen_to_fit(job: Document, batch_size: int) -> bool:
    """Raises RuntimeError where no time was left to see it: that is not to say that it does not fit."""
    answer = run_limited({**job, "task": "fits", "batch_size": batch_size})
    if answer.get("overdue"):
        raise RuntimeError(f"Whether a batch of {batch_size} fits is not known: {answer['error']}.")
    return bool(answer.get("fits", False))


async def ask(crosspoint: Crosspoint, survey: Survey, profile: Profile, row: Row, plan: Plan) -> Document:
    """The largest batch that `instant` tells, with the seconds for a model seen first, and for one that is known."""
    begun = time.perf_counter()
    trace = await crosspoint.trace(row.workload())
    traced = time.perf_counter()
    answer = recommend(survey, profile, trace, [], Request(row.workload()))
    known = time.perf_counter() - traced
    (option,) = (option for option in answer.options if option.plan == plan)
    return {"batch_size": option.max_batch_size, "seconds": traced - begun + known, "known_seconds": known}


async def judge(
    crosspoint: Crosspoint, survey: Survey, profile: Profile, row: Row, plan: Plan, limit_bytes: int
) -> Document:
    """A model's row; one with an `error` where it could not be judged, which costs the others nothing."""
    try:
        return await compare(crosspoint, survey, profile, row, plan, limit_bytes)
    except Exception as error:  # noqa: BLE001 - a miss is shown, not dropped
        return {"model": row.name, "family": row.family, "error": f"{type(error).__name__}: {error}"}


async def compare(
    crosspoint: Crosspoint, survey: Survey, profile: Profile, row: Row, plan: Plan, limit_bytes: int
) -> Document:
    told = await ask(crosspoint, survey, profile, row, plan)
    job = {"workload": row.workload().to_json(), "limit_bytes": limit_bytes, "threads": plan.threads}
    truth = await asyncio.to_thread(largest_that_fits, told["batch_size"] or 1, partial(is_seen_to_fit, job))
    begun = time.perf_counter()
    finder = await asyncio.to_thread(run_limited, {**job, "task": "lightning"})
    finder["seconds"] = finder.get("seconds", time.perf_counter() - begun)
    return {"model": row.name, "family": row.family, "truth": truth, "crosspoint": told, "lightning": finder}


async def run_largest_batch(
    models: Sequence[str], limit_bytes: int, folder: Path, say: Say, keep: Keep, profile: Profile | None
) -> Document:
    """The document that is kept. keep: told all rows so far, after each model."""
    rows: list[Document] = []
    async with Crosspoint(Settings.from_environment(data_dir=folder)) as crosspoint:
        if profile is None:
            say("calibrating")
            profile = await crosspoint.calibrate("quick")
        survey = await crosspoint.survey()
        survey = replace(survey, memory=replace(survey.memory, usable_bytes=limit_bytes))
        plan = Plan("cpu", "fp32", int(survey.cpu.usable_cores or 1))
        await crosspoint.lab.prepare()  # as a service does before the first config asks for it
        for row in (row for name in models for row in WORKLOADS if row.name == name):
            rows.append(await judge(crosspoint, survey, profile, row, plan, limit_bytes))
            say(describe_row(rows[-1]))
            keep(rows)
    return {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": describe_machine(survey),
        "software": {"python": platform.python_version(), **profile.software, "pytorch-lightning": lightning_version()},
        "limit_bytes": limit_bytes,
        "plan": plan.to_json(),
        "table": summarize(rows),
        "rows": rows,
    }


def lightning_version() -> str | None:
    try:
        return version("pytorch-lightning")
    except PackageNotFoundError:
        return None


def summarize(rows: Sequence[Document]) -> Document:
    """By adviser: how far from the truth (told over true, less 1), how often above it, and how long it took."""
    table: Document = {}
    seen = [row for row in rows if "error" not in row]
    for adviser in ("crosspoint", "lightning"):
        judged = [row for row in seen if row["truth"] and row[adviser].get("batch_size")]
        errors = [row[adviser]["batch_size"] / row["truth"] - 1 for row in judged]
        table[adviser] = {
            "models": len(rows),
            "answered": len(judged),
            "median_error": median(map(abs, errors)) if errors else None,
            "worst_error": max(errors, key=abs) if errors else None,
            "too_large": sum(error > NARROW - 1 for error in errors),
            "median_seconds": median(row[adviser]["seconds"] for row in seen) if seen else None,
        }
    return table


def describe_row(row: Document) -> str:
    if "error" in row:
        return f"{row['model']}: {row['error']}"
    parts = [f"{row['model']}: {row['truth']} fit"]
    for adviser in ("crosspoint", "lightning"):
        found = row[adviser]
        parts.append(f"{adviser} {found.get('batch_size') or found.get('error')} in {found['seconds']:.1f} s")
    return ", ".join(parts)


def describe_table(document: Document) -> str:
    """The rows and the summary as Markdown."""
    lines = [
        "| model | fits | crosspoint | after | Lightning's finder | after |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    return "\n".join([*lines, *map(_table_row, document["rows"])])


def _table_row(row: Document) -> str:
    if "error" in row:
        return f"| {row['model']} | not known: {row['error']} | | | | |"
    told = [_told(row, adviser) for adviser in ("crosspoint", "lightning")]
    return (
        f"| {row['model']} | {row['truth']} | {told[0]} | {row['crosspoint']['seconds']:.1f} s | "
        f"{told[1]} | {row['lightning']['seconds']:.0f} s |"
    )


def _told(row: Document, adviser: str) -> str:
    batch_size = row[adviser].get("batch_size")
    if not batch_size or not row["truth"]:
        return "none" if not batch_size else str(batch_size)
    return f"{batch_size} ({batch_size / row['truth'] - 1:+.0%})"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print a line a model and the table, and write the document. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.largest_batch", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--gibibytes", type=float, default=2.0, help="the memory that a process may take")
    parser.add_argument("--models", type=int, default=len(MODELS), help="how many of the models")
    parser.add_argument("--profile", type=Path, help="this machine's profile, instead of calibrating it anew")
    parser.add_argument("--output", type=output_file, default=RESULTS / "largest_batch.json")
    chosen = parser.parse_args(arguments)

    def say(line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    unfinished = Unfinished(chosen.output)
    with tempfile.TemporaryDirectory() as folder:
        known = chosen.profile and Profile.from_json(json.loads(chosen.profile.read_text(encoding="utf-8")))
        limit = round(chosen.gibibytes * 2**30)
        run = run_largest_batch(MODELS[: chosen.models], limit, Path(folder), say, unfinished.keep, known)
        document = asyncio.run(run)
    chosen.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    unfinished.end()
    say(describe_table(document))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
