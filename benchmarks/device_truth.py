"""What steps take on a machine's devices: the truth that estimates of its devices are judged by, kept for tests.

    python -m benchmarks.device_truth --output out --seconds 470     # a machine with a CUDA device
    python -m benchmarks.device_truth --output out --device cpu --seconds 60 --workloads 3      # that it works

Needs torch and this repository, no service. Files, each written as soon as it is measured: machine.json (survey and
torch's word), profile_1.json (a calibration of the device), profile_2.json (of the whole machine), truth.json.gz (real
steps of benchmarks.workloads under every plan of the device, at the batch sizes of the table and at sixteen times the
largest, each in two fresh processes; the same under plans of the CPU; step times over the batch; what steps run, as a
trace has it), experiment.json (iris), events.json (what happened when, and what failed with its reason).
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import random
import statistics
import subprocess
import sys
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from benchmarks.measuring_child import GRACE_SECONDS, Child
from benchmarks.workloads import WORKLOADS, Row
from probes.microtrain.calibration.device_clock import clock_device_steps
from probes.microtrain.calibration.operation_clock import record_operations
from probes.microtrain.measuring.overheads import measure_launch
from probes.microtrain.measuring.workbench import StepRun, Workbench
from probes.microtrain.plans import cuda_precisions, read_cores
from probes.microtrain.processes import fresh_processes
from probes.microtrain.processes.fresh_processes import EndedEarly, Fresh
from probes.microtrain.traces.merging import merge
from probes.trace import Trace
from probes.workload.description import Plan, Workload

Document = dict[str, Any]

LARGER = 16  # times the largest batch of the table, where a device computes for longer than it is issued to
PROCESSES = 2
AHEAD = 2  # processes that build their models, on a core each, while one measures; none begins to use the device
BLOCKS, BLOCK_SECONDS, LEAD_IN_SECONDS = 5, 0.012, 0.003
CPU_BLOCKS, LONG_SECONDS = 3, 0.25  # a step on a CPU that takes longer is timed once
CURVES: tuple[str, ...] = ("iris", "tabular", "digits", "image small", "lstm", "encoder", "tabular inference")
CURVE_SIZES = tuple(4**power for power in range(9))
EPOCHS = 1000
# In their order, each with its share of the time that is left.
STAGES = {"profile_1": 0.15, "device": 0.51, "cpu": 0.12, "curves": 0.05, "experiment": 0.03, "profile_2": 0.14}


def describe_run(run: StepRun, samples: Sequence[float], launch: float | None, device: float | None) -> Document:
    """launch: seconds of the host for a step onto an idle queue; device: of all its kernels."""
    memory = run.memory()
    return {
        "plan": run.plan.to_json(),
        "batch_size": run.batch_size,
        "seconds": {"median": statistics.median(samples), "samples": [float(f"{each:.4g}") for each in samples]},
        "launch_seconds": launch,
        "device_seconds": device,
        "memory": asdict(memory),
    }


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class Measuring:
    """In a process of its own: all plans and batch sizes of one workload, in turns."""

    def __init__(self, workload: Workload, sizes: Sequence[int], plans: Sequence[Plan], blocks: int) -> None:
        self._bench = Workbench(workload, frozenset(plan.device for plan in plans))
        with one_thread():  # beside another's steps
            self._bench.build()
        self._runs = [StepRun(self._bench, plan, size) for size in sizes for plan in plans]
        self._blocks = blocks
        self._second: dict[int, float] = {}  # by run, seconds of its second step
        self._samples: dict[int, list[float]] = defaultdict(list)
        self._errors: list[Document] = []

    def measure(self, deadline: float) -> Document:
        running = [run for run in self._runs if time.perf_counter() < deadline and self._begin(run)]
        for _ in range(self._blocks):
            turn = [run for run in running if not self._is_done(run)]
            random.shuffle(turn)
            for run in turn:
                if time.perf_counter() < deadline:
                    self._try(run, self._block)
        timed = [run for run in running if self._samples[id(run)]]
        computing = self._device_seconds(timed)
        rows = [
            describe_run(
                run, self._samples[id(run)], None if run.plan.is_cpu else self._launch(run), computing.get(id(run))
            )
            for run in timed
        ]
        return {"runs": rows, "errors": self._errors, "operations": self._operations(running)}

    def _begin(self, run: StepRun) -> bool:
        return self._try(run, self._first_steps)

    def _first_steps(self, run: StepRun) -> None:
        for _ in range(2):
            with run.watched(), run.setting():
                self._second[id(run)] = run(1)
        if self._is_done(run):
            self._samples[id(run)].append(self._second[id(run)])

    def _is_done(self, run: StepRun) -> bool:
        return run.plan.is_cpu and self._second[id(run)] > LONG_SECONDS

    def _block(self, run: StepRun) -> None:
        known = self._samples[id(run)]
        expected = known[-1] if known else self._second[id(run)]
        with run.setting():
            run(max(1, int(LEAD_IN_SECONDS / expected)))
            steps = max(1, int(BLOCK_SECONDS / expected))
            begun = time.perf_counter()
            run(steps)
            known.append((time.perf_counter() - begun) / steps)

    def _launch(self, run: StepRun) -> float | None:
        with run.setting():
            step = run.prepared()
            return measure_launch(step, step.feed.next())

    def _device_seconds(self, runs: Sequence[StepRun]) -> dict[int, float]:
        """By run, of a step's kernels; nothing where there is no profiler."""
        on_device = [run for run in runs if not run.plan.is_cpu]
        try:
            found = clock_device_steps(on_device, 1) if on_device else []
        except Exception as error:  # noqa: BLE001 - the steps' times stand without it
            self._errors.append({"error": f"no device clock: {type(error).__name__}: {error}"[:300]})
            return {}
        return {id(run): sum(cost.seconds for cost in steps[0]) for run, steps in zip(on_device, found, strict=True)}

    def _try(self, run: StepRun, action: Callable[[StepRun], None]) -> bool:
        try:
            action(run)
        except Exception as error:  # noqa: BLE001 - a plan that fails costs only itself
            said = f"{type(error).__name__}: {error}"[:300]
            self._errors.append({"plan": run.plan.to_json(), "batch_size": run.batch_size, "error": said})
            self._samples.pop(id(run), None)
            run.drop()
            return False
        return True

    def _operations(self, running: Sequence[StepRun]) -> Document:
        """By precision, what a step runs, as a function of the batch: rows as probes.trace writes them."""
        found: Document = {}
        for precision in ("fp32", "bf16"):
            runs = [run for run in running if run.plan.precision == precision and not run.plan.is_cpu][:2]
            if len(runs) == 2 and runs[0].batch_size != runs[1].batch_size:
                records = []
                for run in runs:
                    with run.setting():
                        records.append(record_operations(run.prepared()))
                sizes = (runs[0].batch_size, runs[1].batch_size)
                found[precision] = operations_to_rows(merge(sizes, *records))
        return found


def operations_to_rows(operations: Any) -> list[Any]:
    empty = dict.fromkeys(Trace.__dataclass_fields__)
    trace = Trace(**{**empty, "operations": operations, "autocast_operations": ()})  # type: ignore[arg-type]
    return list(trace.to_json()["operations"])


def serve_workload(
    serve: Callable[[Callable[[Any], object]], object],
    workload: Document,
    sizes: Sequence[int],
    plans: Sequence[Document],
    blocks: int,
) -> None:
    """Builds the model, then measures when asked."""
    try:
        measuring = Measuring(Workload.from_json(workload), sizes, [Plan.from_json(plan) for plan in plans], blocks)
    except Exception as error:  # noqa: BLE001 - told to whoever asks
        said = f"{type(error).__name__}: {error}"[:300]
        serve(lambda _: {"runs": [], "errors": [{"error": said}], "operations": {}})
        return
    serve(measuring.measure)


class Job:
    """One process's work."""

    def __init__(self, row: Row, kind: str, sizes: Sequence[int], plans: Sequence[Plan], blocks: int) -> None:
        self.row, self.kind, self.sizes, self.plans, self.blocks = row, kind, sizes, plans, blocks

    def start(self) -> Fresh:
        plans = [plan.to_json() for plan in self.plans]
        return Fresh(serve_workload, (self.row.workload().to_json(), tuple(self.sizes), plans, self.blocks))


def device_jobs(rows: Sequence[Row], device: str, processes: int) -> Iterator[Job]:
    plans = [Plan(device, precision) for precision in cuda_precisions(device)] if device != "cpu" else cpu_plans()[:2]
    for _ in range(processes):
        for row in rows:
            yield Job(row, "device", (*row.batch_sizes, LARGER * row.batch_sizes[-1]), plans, BLOCKS)


def cpu_plans() -> list[Plan]:
    cores = read_cores().usable
    counts = sorted({1, max(1, cores // 4), cores})
    return [Plan("cpu", precision, count) for count in counts for precision in ("fp32", "bf16")]  # type: ignore[arg-type]


def cpu_jobs(rows: Sequence[Row]) -> Iterator[Job]:
    for row in rows:
        yield Job(row, "cpu", row.batch_sizes, cpu_plans(), CPU_BLOCKS)


def curve_jobs(rows: Sequence[Row], device: str) -> Iterator[Job]:
    cores = read_cores().usable
    for row in rows:
        if row.name in CURVES:
            yield Job(row, "curve", CURVE_SIZES, [Plan("cpu", "fp32", 1), Plan("cpu", "fp32", cores)], CPU_BLOCKS)
            if device != "cpu":
                yield Job(row, "curve", CURVE_SIZES, [Plan(device, "fp32"), Plan(device, "bf16")], CPU_BLOCKS)


class Truth:
    """Runs stage after stage within the time, and writes each answer at once."""

    def __init__(self, output: Path, device: str, seconds: float, effort: str, processes: int = PROCESSES) -> None:
        self._output, self._device, self._effort, self._processes = output, device, effort, processes
        self._begun = time.perf_counter()
        self._seconds = seconds
        self._events: list[Document] = []
        self._rows: list[Document] = []
        output.mkdir(parents=True, exist_ok=True)

    def run(self, rows: Sequence[Row], stages: Sequence[str]) -> None:
        survey = self._describe_machine()
        iris = {"kind": "experiment", "name": "iris", "epochs": EPOCHS, "log_every": [1, 10, None], "devices": []}
        run: dict[str, Callable[[float], None]] = {
            "profile_1": lambda end: self._calibrate("profile_1", survey, [self._device], end),
            "device": lambda end: self._measure("device", device_jobs(rows, self._device, self._processes), end),
            "cpu": lambda end: self._measure("cpu", cpu_jobs(rows), end),
            "curves": lambda end: self._measure("curves", curve_jobs(rows, self._device), end),
            "experiment": lambda end: self._job("experiment", iris, end),
            "profile_2": lambda end: self._calibrate("profile_2", survey, [], end),
        }
        left = sum(STAGES[name] for name in stages)
        for name in stages:
            now = time.perf_counter()
            run[name](now + max(self._begun + self._seconds - now, 0.0) * STAGES[name] / left)
            left -= STAGES[name]
            self._write("events", self._events)

    def _describe_machine(self) -> Document:
        done = subprocess.run([sys.executable, "-m", "probes"], capture_output=True, timeout=60, check=False)
        survey: Document = json.loads(done.stdout) if done.returncode == 0 else {}
        child = Child()
        child.start()
        self._write("machine", {"survey": survey, "torch": child.ready})
        child.end()
        return survey

    def _calibrate(self, name: str, survey: Document, devices: Sequence[str], end: float) -> None:
        job = {
            "kind": "calibrate",
            "effort": self._effort,
            "devices": devices,
            "usable_cores": None,
            "fingerprint": survey.get("fingerprint", ""),
            "machine": (survey.get("cpu") or {}).get("name") or "",
            "name": name,
        }
        self._job(name, job, end)

    def _job(self, name: str, job: Document, end: float) -> None:
        child = Child()
        try:
            event = child.run(job, max(end - time.perf_counter(), 5.0) + GRACE_SECONDS)
        finally:
            child.end()
        failed = event["event"] != "result"
        self._log(f"{name} failed: {event['reason']}" if failed else name)
        if not failed:
            self._write(name, event["result"])

    def _measure(self, stage: str, jobs: Iterable[Job], deadline: float) -> None:
        """Process after process; the next ones build their models meanwhile."""
        fresh_processes.prepare(for_configs=True)
        fresh_processes.wait_until_ready()
        waiting, ahead = deque(jobs), deque[tuple[Job, Fresh]]()
        while waiting or ahead:
            while waiting and len(ahead) <= AHEAD:
                job = waiting.popleft()
                ahead.append((job, job.start()))
            job, process = ahead.popleft()
            left = 1 + len(waiting) + len(ahead)
            now = time.perf_counter()
            if now < deadline:
                self._ask(job, process, now + max(4 * (deadline - now) / left, 0.5))
            process.end()
        fresh_processes.end()
        self._log(f"{stage}: {len(self._rows)} answers")
        path = self._output / "truth.json.gz"
        path.write_bytes(gzip.compress(json.dumps(self._rows).encode()))

    def _ask(self, job: Job, process: Fresh, deadline: float) -> None:
        try:
            answer = process.ask(min(deadline, time.perf_counter() + 60.0))
        except EndedEarly:
            answer = {"runs": [], "errors": [{"error": "the process ended"}], "operations": {}}
        row = job.row
        head = {"name": row.name, "family": row.family, "mode": row.mode, "optimizer": row.optimizer, "kind": job.kind}
        self._rows.append({**head, **answer, "at_seconds": round(time.perf_counter() - self._begun, 1)})
        for error in answer["errors"]:
            self._log(f"{row.name}: {error}")

    def _write(self, name: str, document: Any) -> None:
        (self._output / f"{name}.json").write_text(json.dumps(document))

    def _log(self, text: str) -> None:
        seconds = time.perf_counter() - self._begun
        self._events.append({"seconds": round(seconds, 1), "text": text})
        sys.stderr.write(f"{seconds:7.1f} s  {text}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, required=True, help="folder for the files")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--seconds", type=float, default=470.0, help="time for everything")
    parser.add_argument("--effort", choices=("quick", "full"), default="full", help="of the calibrations")
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=tuple(STAGES), help="what to measure")
    parser.add_argument("--processes", type=int, default=PROCESSES, help="of each workload on the device")
    parser.add_argument("--workloads", type=int, default=len(WORKLOADS), help="how many of the workloads")
    options = parser.parse_args()
    Truth(options.output, options.device, options.seconds, options.effort, options.processes).run(
        WORKLOADS[: options.workloads], [name for name in STAGES if name in options.stages]
    )


if __name__ == "__main__":
    main()
