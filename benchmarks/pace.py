"""How long the cores' pace takes to settle after other work, which is not a neighbour's doing (docs/decisions/0013).

python -m benchmarks.pace [--rounds 40] [--output FILE]        seven seconds for each number of threads

After products of matrices, copies, small steps of training, a busy wait and a sleep, the fixed work of the pace
(probes.microtrain.quiet.pace) runs again and again for a while: what the quickest run took that ended by each moment,
against what a hundredth of all runs took at most. A reading that ended there would have called the cores so much
slower.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks.machine import read_machine
from benchmarks.output import output_file
from probes.microtrain.calibration.turns import repeat
from probes.microtrain.plans import fewer_thread_counts, read_cores, thread_counts
from probes.microtrain.quiet.pace import repeat_work
from probes.microtrain.step import applied
from probes.workload.description import Plan

RESULTS = Path(__file__).parent / "results"
THREAD_COUNTS = 4  # on machines with many cores
MOMENTS = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.004)  # seconds after the other work
WORK_SECONDS = 0.02  # of other work, before the pace is read


class Run(NamedTuple):
    """One execution of the fixed work. ended: seconds after the other work did."""

    ended: float
    seconds: float


def works() -> Mapping[str, Callable[[], object]]:
    """What steps are made of, each for as long on any machine, or once where that takes longer."""
    wide, many, small = torch.randn(512, 512), torch.randn(40_000_000), torch.randn(64, 256)
    narrow, copy = wide.bfloat16(), torch.empty_like(many)
    layers = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(4)))
    return {
        "busy waiting": lambda: repeat(lambda: None, WORK_SECONDS),
        "sleep": lambda: time.sleep(WORK_SECONDS),
        "products, fp32": lambda: repeat(lambda: wide @ wide, WORK_SECONDS),
        "products, bf16": lambda: repeat(lambda: narrow @ narrow, WORK_SECONDS),
        "a copy of 160 MB": lambda: repeat(lambda: copy.copy_(many), WORK_SECONDS),
        "small layers, trained": lambda: repeat(lambda: layers(small).sum().backward(), WORK_SECONDS),
    }


def measure(rounds: int) -> dict[str, list[list[Run]]]:
    """By work, of each round. On as many threads as torch has now."""
    done = works()
    found: dict[str, list[list[Run]]] = {name: [] for name in done}
    for _ in range(rounds):
        for name, work in done.items():
            work()
            found[name].append(_runs(MOMENTS[-1]))
    return found


def _runs(seconds: float) -> list[Run]:
    begun = now = time.perf_counter()
    found = []
    while now - begun < seconds:
        before = now
        repeat_work()
        now = time.perf_counter()
        found.append(Run(now - begun, now - before))
    return found


def settle(rounds: Mapping[str, Sequence[Sequence[Run]]]) -> dict[str, list[float]]:
    """By work, at each of MOMENTS: the quickest run so far over the quickest hundredth of all runs, the median of the
    rounds."""
    everything = sorted(run.seconds for found in rounds.values() for runs in found for run in runs)
    quick = everything[len(everything) // 100]
    return {
        name: [statistics.median(_quickest_by(runs, moment) / quick for runs in found) for moment in MOMENTS]
        for name, found in rounds.items()
    }


def _quickest_by(runs: Sequence[Run], moment: float) -> float:
    return min((run.seconds for run in runs if run.ended <= moment), default=runs[0].seconds)


def describe(table: Mapping[str, Sequence[float]], threads: int) -> str:
    """As Markdown."""
    moments = " | ".join(f"{moment * 1e3:g} ms" for moment in MOMENTS)
    lines = [f"| {threads} thread{'s' * (threads > 1)}, after | {moments} |", "| --- |" + " --- |" * len(MOMENTS)]
    lines += [f"| {name} | " + " | ".join(f"{ratio:.2f}" for ratio in row) + " |" for name, row in table.items()]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, say and write. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pace", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--output", type=output_file, default=RESULTS / "pace.json")
    chosen = parser.parse_args(arguments)
    document: dict[str, Any] = {"machine": read_machine(), "moments_seconds": MOMENTS, "threads": {}}
    for threads in fewer_thread_counts(thread_counts(read_cores()), THREAD_COUNTS):
        with applied(Plan("cpu", "fp32", threads)):
            table = settle(measure(chosen.rounds))
        document["threads"][threads] = table
        sys.stdout.write(describe(table, threads) + "\n\n")
    document["measured_at"] = datetime.now(UTC).isoformat(timespec="seconds")
    chosen.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
