"""What page faults cost a step, and how looking at a step does away with them (docs/decisions/0005).

python -m benchmarks.page_faults        five micro-networks, half a minute

Plain steps of one plan in a fresh process, then steps under torch's profiler or the operation clock, in turns: seconds
and minor faults a step. Both leave small blocks on the heap, above which less of it goes back to the system.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable

from torch.autograd.profiler import profile

from probes.microtrain import fresh_processes
from probes.microtrain.networks import MICRO_NETWORKS
from probes.microtrain.operation_clock import clock_step
from probes.microtrain.step import Step
from probes.microtrain.workbench import StepRun, Workbench
from probes.workload.description import Mode, Plan

CASES: tuple[tuple[str, Mode, int], ...] = (
    ("mlp-wide", "training", 8),
    ("mlp-huge", "training", 4),
    ("cnn-residual", "inference", 12),
    ("embedding-classifier", "training", 8),
    ("transformer-long", "training", 2),
)
WATCHED = ("plain", "plain", "profiled", "plain", "profiled", "plain", "clocked", "plain", "clocked", "plain")
SECONDS = 0.4  # of one block
Block = tuple[str, float, float]  # what watched, seconds a step, faults a step


def measure(name: str, mode: Mode, batch_size: int) -> list[Block]:
    """fp32 on one thread, block after block in the order of WATCHED."""
    network = next(network for network in MICRO_NETWORKS if network.name == name)
    run = StepRun(Workbench(network.workload(mode), frozenset({"cpu"})), Plan("cpu", "fp32", 1), batch_size)
    with run.setting():
        step = run.prepared()
        run(2)
        return [(watch, *_block(step, watch)) for watch in WATCHED]


def _block(step: Step, watch: str) -> tuple[float, float]:
    if watch == "profiled":
        with profile(use_kineto=True):
            return _run(step)
    return _run(step) if watch == "plain" else _run(lambda: clock_step(step))


def _run(step: Callable[[], object]) -> tuple[float, float]:
    faults, begun, steps = _faults(), time.perf_counter(), 0
    while time.perf_counter() - begun < SECONDS:
        step()
        steps += 1
    return (time.perf_counter() - begun) / steps, (_faults() - faults) / steps


def _faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def main() -> int:
    """A line a network. Returns the exit code."""
    for case in CASES:
        blocks = fresh_processes.run_fresh(measure, case, lambda: None)
        told = ", ".join(f"{watch} {seconds * 1e3:.3g} ms ({faults:.0f})" for watch, seconds, faults in blocks)
        sys.stdout.write(f"{case[0]}, {case[1]}, batch {case[2]}: ms a step (faults a step): {told}\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
