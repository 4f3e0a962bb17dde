"""How good are the estimates of memory: against real steps, beside three well-known estimators.

    python -m benchmarks.memory --output memory.json                        # everything: an hour on two cores
    python -m benchmarks.memory --output memory.json --random 100 --seed 7  # more networks that nobody chose, others
    python -m benchmarks.memory --output memory.json --cases 3 --random 0   # the first of those that we chose
    python -m benchmarks.memory --output memory.json --truths truths.json   # goes on where it was ended

Truth comes from a process of its own for each case (benchmarks.memory_truth). Beside our estimate stand what
`accelerate estimate-memory` says (its published rule: weights in fp32, times four for training with Adam), torch's
MemTracker (which runs the step), and DeepSpeed's rule for ZeRO-2 on one device (20 bytes a parameter; activations are
left out by both rules). Memory needs no quiet machine. After those that we chose come networks drawn at
random (benchmarks.random_networks).

A process is told by the base that a calibration would have read in another one (benchmarks.memory_base). Nothing of
it is fitted to these workloads: what libraries take of a process (WORKING_BYTES of app.advisor.memory_model.memory) are
medians of other networks (benchmarks.working_bytes).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch

from app.advisor.memory_model.memory import estimate_memory, working_bytes
from app.service import Crosspoint
from app.settings import Settings
from benchmarks.child import run_child
from benchmarks.output import output_file
from benchmarks.random_networks import random_networks
from benchmarks.workloads import WORKLOADS, Row
from probes.measurement import Measurement, MemoryPeak
from probes.trace import Trace
from probes.workload.description import Plan, Precision, Workload

Document = dict[str, Any]

CHILD_SECONDS = 600.0
RANDOM, SEED = 24, 20261127
# Threads that wait for each other on a crowded machine should sleep, not spin.
ENVIRONMENT = {"OMP_WAIT_POLICY": "PASSIVE", "HF_HUB_OFFLINE": "1", "KINETO_LOG_LEVEL": "99"}
FIGURES = ("ours", "accelerate", "mem_tracker", "deepspeed")


class Case(NamedTuple):
    row: Row
    workload: Workload
    precision: Precision


def chosen_cases() -> list[Case]:
    """Every workload in fp32, every other one in bf16, every third that trains with another optimizer."""
    plain = [Case(row, row.workload(), "fp32") for row in WORKLOADS]
    narrow = [Case(row, row.workload(), "bf16") for row in WORKLOADS[::2]]
    training = [row for row in WORKLOADS if row.mode == "training" and row.optimizer == "adamw"]
    others = [
        Case(row, replace(row.workload(), optimizer=("sgd", "adam")[index % 2]), "fp32")
        for index, row in enumerate(training[1::3])
    ]
    return [*plain, *narrow, *others]


def drawn_cases(count: int, seed: int) -> list[Case]:
    precisions: tuple[Precision, ...] = ("fp32", "bf16")
    return [Case(row, row.workload(), precision) for row in random_networks(count, seed) for precision in precisions]


class Truths:
    """Real steps take long and do not change with our estimates: each is kept in a file, if one was named."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        text = path.read_text(encoding="utf-8") if path is not None and path.exists() else "{}"
        self._known: dict[str, Document] = json.loads(text)

    def of(self, case: Case, batch_size: int) -> Document:
        key = json.dumps([case.row.name, case.workload.mode, case.workload.optimizer, case.precision, batch_size])
        if key not in self._known:
            self._known[key] = read_truth(case, batch_size)
            if self._path is not None:
                self._path.write_text(json.dumps(self._known, indent=1) + "\n", encoding="utf-8")
        return self._known[key]


async def run_case(crosspoint: Crosspoint, case: Case, truths: Truths, base_bytes: int) -> list[Document]:
    """A row for each batch size, or one that says why there is none."""
    name = {"name": case.row.name, "family": case.row.family, "mode": case.workload.mode}
    name |= {"optimizer": case.workload.optimizer, "precision": case.precision}
    try:
        trace = await crosspoint.trace(case.workload)
        steps = [await asyncio.to_thread(truths.of, case, size) for size in case.row.batch_sizes]
        return [{**name, **compare(case, trace, truth, base_bytes)} for truth in steps]
    except Exception as error:  # noqa: BLE001 - a case that fails is shown, and costs only itself
        return [{**name, "failed": f"{type(error).__name__}: {str(error)[:200]}"}]


def read_base() -> int:
    """Of a process that runs none of the cases, as a profile has it. Raises RuntimeError."""
    answer = run_child("benchmarks.memory_base", {}, CHILD_SECONDS, ENVIRONMENT)
    if answer.get("base_bytes") is None:
        said = answer.get("error", "this system does not tell what a process holds")
        raise RuntimeError(f"The base of a process could not be read, which every estimate needs: {said}.")
    return int(answer["base_bytes"])


def read_truth(case: Case, batch_size: int) -> Document:
    job = {"workload": case.workload.to_json(), "precision": case.precision, "batch_size": batch_size}
    truth = run_child("benchmarks.memory_truth", job, CHILD_SECONDS, ENVIRONMENT)
    if "error" in truth:
        raise RuntimeError(truth["error"])
    return truth


def compare(case: Case, trace: Trace, truth: Document, base_bytes: int) -> Document:
    """base_bytes: of another process, as the one that is judged is not there yet when it is told."""
    plan, base = Plan("cpu", case.precision), MemoryPeak(process_base_bytes=base_bytes)
    known = Measurement(plan, 1, case.workload.data, "ok", memory=base)  # a base, as calibration measures it: no more
    kind, size = case.workload.model.kind, truth["batch_size"]
    estimate = estimate_memory(None, None, trace, [known], plan, kind)
    return {
        "batch_size": size,
        "base_bytes": base_bytes,
        "own_base_bytes": truth["base_bytes"],
        "allocated_bytes": truth["allocated_bytes"],
        "process_bytes": truth["process_bytes"],
        "estimated_process_bytes": estimate.peak(size),
        "libraries_bytes": truth["process_bytes"] - (estimate.peak(size) - working_bytes(trace, kind)),
        "kind": "huggingface" if kind == "huggingface" else "layers",
        "convolves": any(operation.kind == "convolution" for operation in trace.operations),
        "estimates": {
            "ours": estimate.allocated(size),
            "accelerate": accelerate_bytes(trace),
            "mem_tracker": truth["tracker_bytes"],
            "deepspeed": deepspeed_bytes(trace),
        },
    }


def accelerate_bytes(trace: Trace) -> int:
    """accelerate/commands/estimate.py: the weights; in training with Adam four times that. Whatever the batch."""
    return trace.parameter_bytes * (4 if trace.mode == "training" else 1)


def deepspeed_bytes(trace: Trace) -> int | None:
    """estimate_zero2_model_states_mem_needs (deepspeed/runtime/zero/stage_1_and_2.py), one device without offload: 4
    bytes a parameter, and 16 shared by the devices. Training only."""
    return 20 * trace.parameters if trace.mode == "training" else None


def summarise(rows: Sequence[Document]) -> Document:
    good = [row for row in rows if "failed" not in row]
    families = dict.fromkeys(row["family"] for row in good)
    return {
        "cases": len(good),
        "failed": [row for row in rows if "failed" in row],
        "allocated": {name: _errors(good, name) for name in FIGURES},
        "process": _spread([abs(row["estimated_process_bytes"] / row["process_bytes"] - 1) for row in good]),
        "by_family": {
            family: {name: _errors([row for row in good if row["family"] == family], name) for name in FIGURES}
            | {
                "process": _spread(
                    [
                        abs(row["estimated_process_bytes"] / row["process_bytes"] - 1)
                        for row in good
                        if row["family"] == family
                    ]
                )
            }
            for family in families
        },
    }


def _errors(rows: Sequence[Document], name: str) -> Document:
    told = [(row["estimates"][name], row["allocated_bytes"]) for row in rows if row["estimates"][name] is not None]
    return _spread([abs(estimate / truth - 1) for estimate, truth in told])


def _spread(errors: Sequence[float]) -> Document:
    if not errors:
        return {"rows": 0, "median": None, "worst": None}
    return {"rows": len(errors), "median": round(median(errors), 4), "worst": round(max(errors), 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=output_file, required=True)
    parser.add_argument("--random", type=int, default=RANDOM, help=f"how many networks are drawn: {RANDOM}")
    parser.add_argument("--seed", type=int, default=SEED, help=f"of what is drawn: {SEED}")
    parser.add_argument("--cases", type=int, help="so many of those that we chose; all when left out")
    parser.add_argument("--truths", type=Path, help="a file that keeps what real steps took")
    options = parser.parse_args()
    cases = (*chosen_cases()[: options.cases], *drawn_cases(options.random, options.seed))
    drawn = {"random": options.random, "seed": options.seed}

    def keep(rows: Sequence[Document]) -> None:
        document = {"torch": torch.__version__, **drawn, "summary": summarise(rows), "rows": rows}
        options.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")

    with tempfile.TemporaryDirectory(prefix="crosspoint-") as folder:
        asyncio.run(run_cases(cases, Truths(options.truths), Path(folder), keep))


async def run_cases(
    cases: Iterable[Case], truths: Truths, folder: Path, keep: Callable[[Sequence[Document]], object]
) -> None:
    """Traces are the service's: its process for them lets threads that wait sleep, as this one's would not. folder: of
    a store without any. keep: told all rows so far, after each case."""
    rows: list[Document] = []
    base_bytes = read_base()
    async with Crosspoint(Settings.from_environment(data_dir=folder)) as crosspoint:
        for case in cases:
            rows += await run_case(crosspoint, case, truths, base_bytes)
            sys.stderr.write(f"{_describe(rows[-1])}\n")
            keep(rows)


def _describe(row: Document) -> str:
    name = f"{row['name']}, {row['mode']}, {row['optimizer']}, {row['precision']}"
    if "failed" in row:
        return f"{name}: {row['failed']}"
    allocated = row["estimates"]["ours"] / row["allocated_bytes"] - 1
    process = row["estimated_process_bytes"] / row["process_bytes"] - 1
    return f"{name}, batch {row['batch_size']}: allocated {allocated:+.1%}, process {process:+.1%}"


if __name__ == "__main__":
    main()
