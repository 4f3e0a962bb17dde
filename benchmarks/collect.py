"""Collects everything that can be measured on one machine into a folder of JSON files.

    python -m benchmarks.collect --output out --seconds 480      # a machine with a GPU
    python -m benchmarks.collect --output out --quick            # a minute or two, to see that it works

Needs torch and this repository, no service. Files: machine.json (survey and torch's devices), profile.json
(calibration), measurements.json (real steps of the workloads below and of benchmarks.workloads on all plans),
traces.json (what these steps run), experiment.json (iris), events.json (when what happened, and what failed with its
reason). What fails costs only its own file.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.measuring_child import GRACE_SECONDS, Child
from benchmarks.workloads import WORKLOADS as JUDGED

Document = dict[str, Any]

CALIBRATION_SECONDS = {"quick": 20.0, "full": 60.0}
LEAST_MEASURE_SECONDS = 2.0
TRACE_SECONDS = 30.0


class Row(NamedTuple):
    """What a user would ask for, and the batch sizes to measure it at."""

    model: Any
    batch_sizes: tuple[int, ...]
    mode: str = "training"
    data: str = "pageable"
    name: str = ""  # of a model that is no catalogue name
    optimizer: str = "adamw"

    @property
    def label(self) -> str:
        return f"{self.name or self.model} {self.mode}"


WORKLOADS: tuple[Row, ...] = (
    Row("iris-mlp", (1, 16, 120, 2048)),
    Row("tabular-mlp", (16, 256, 4096)),
    Row("mnist-mlp", (16, 128, 1024)),
    Row("mnist-cnn", (16, 128, 512)),
    Row("cifar-cnn", (16, 128, 512)),
    Row("resnet-18", (4, 32, 128), data="pinned"),
    Row("resnet-50", (4, 32, 128), data="pinned"),
    Row("mobilenet-v2", (4, 32, 128), data="pinned"),
    Row("lstm-classifier", (8, 64, 256)),
    Row("time-series-lstm", (8, 64, 512)),
    Row("transformer-classifier", (4, 32, 128)),
    Row("distilbert", (2, 16, 64)),
    Row("gpt2", (1, 4, 16)),
    Row("resnet-50", (1, 16, 64), mode="inference"),
)
QUICK: tuple[Row, ...] = (Row("iris-mlp", (1, 16, 120)), Row("mnist-cnn", (16, 64)), Row("lstm-classifier", (8,)))


class Collection:
    """Runs job after job within `seconds`, and writes each answer at once."""

    def __init__(self, output: Path, seconds: float, effort: str) -> None:
        self._output = output
        self._effort = effort
        self._begun = time.monotonic()
        self._end = self._begun + seconds
        self._child = Child()
        self._events: list[Document] = []
        output.mkdir(parents=True, exist_ok=True)

    def run(self) -> None:
        try:
            self._describe_machine()
            self._calibrate()
            self._experiment()
            self._measure_all(QUICK if self._effort == "quick" else (*WORKLOADS, *judged_rows()))
        finally:
            self._child.end()
            self._write("events", self._events)

    def _describe_machine(self) -> None:
        done = subprocess.run([sys.executable, "-m", "probes"], capture_output=True, timeout=60, check=False)
        survey = json.loads(done.stdout) if done.returncode == 0 else None
        self._child.start()
        self._write("machine", {"survey": survey, "torch": self._child.ready})

    def _calibrate(self) -> None:
        machine = json.loads((self._output / "machine.json").read_text())
        survey = machine["survey"] or {}
        job = {
            "kind": "calibrate",
            "effort": self._effort,
            "devices": [],
            "usable_cores": None,
            "fingerprint": survey.get("fingerprint", ""),
            "machine": (survey.get("cpu") or {}).get("name") or "",
            "name": "collected",
        }
        self._keep("profile", self._job("calibration", job, CALIBRATION_SECONDS[self._effort]))

    def _experiment(self) -> None:
        epochs = 500 if self._effort == "quick" else 20_000
        log_every = [1, 10, 100, 200, 1000, None]
        job = {"kind": "experiment", "name": "iris", "epochs": epochs, "log_every": log_every, "devices": []}
        self._keep("experiment", self._job("experiment", job, max(10.0, self._end - time.monotonic())))

    def _measure_all(self, rows: tuple[Row, ...]) -> None:
        results, traces = [], []
        for index, row in enumerate(rows):
            seconds = (self._end - time.monotonic()) / (len(rows) - index)
            if seconds < LEAST_MEASURE_SECONDS:
                self._log(f"no time left for {row.label} and what follows")
                break
            job = {
                "kind": "measure",
                "workload": describe_workload(row),
                "plans": [],
                "batch_sizes": list(row.batch_sizes),
                "seconds": seconds,
                "memory_limit_bytes": None,
            }
            result = self._job(row.label, job, seconds)
            if result is not None:
                results.append({"name": row.label, "workload": job["workload"], "result": result})
                self._write("measurements", results)
            trace = self._job(f"trace of {row.label}", {"kind": "trace", "workload": job["workload"]}, TRACE_SECONDS)
            if trace is not None:
                traces.append({"name": row.label, "trace": trace})
                self._write("traces", traces)

    def _job(self, name: str, job: Document, seconds: float) -> Any:
        """The result, or None with the reason in the log."""
        event = self._child.run(job, seconds + GRACE_SECONDS)
        self._log(name if event["event"] == "result" else f"{name} failed: {event['reason']}")
        return event.get("result")

    def _keep(self, name: str, document: Any) -> None:
        if document is not None:
            self._write(name, document)

    def _write(self, name: str, document: Any) -> None:
        (self._output / f"{name}.json").write_text(json.dumps(document, indent=1))

    def _log(self, text: str) -> None:
        seconds = time.monotonic() - self._begun
        self._events.append({"seconds": round(seconds, 1), "text": text})
        sys.stderr.write(f"{seconds:7.1f} s  {text}\n")


def judged_rows() -> tuple[Row, ...]:
    """The models that estimates are judged on."""
    return tuple(Row(row.model, row.batch_sizes, row.mode, "resident", row.name, row.optimizer) for row in JUDGED)


def describe_workload(row: Row) -> Document:
    from probes.workload.description import Workload
    from probes.workload.models import parse_model

    model, size = parse_model(row.model), row.batch_sizes[0]
    return Workload(model, size, mode=row.mode, optimizer=row.optimizer, data=row.data).to_json()  # type: ignore[arg-type]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, required=True, help="folder for the JSON files")
    parser.add_argument("--seconds", type=float, help="time for everything (480; with --quick 75)")
    parser.add_argument("--quick", action="store_true", help="few workloads and a short calibration")
    options = parser.parse_args()
    seconds = options.seconds or (75.0 if options.quick else 480.0)
    Collection(options.output, seconds, "quick" if options.quick else "full").run()


if __name__ == "__main__":
    main()
