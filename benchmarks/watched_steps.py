"""Seconds and page faults of a micro-network's steps, plain and watched in turns.

Apart from benchmarks.page_faults, which has it run in fresh processes, for the same reason as benchmarks.clocked_step.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from torch.autograd.profiler import profile

from probes.microtrain.calibration.networks import MICRO_NETWORKS
from probes.microtrain.calibration.operation_clock import clock_step
from probes.microtrain.measuring.workbench import StepRun, Workbench
from probes.microtrain.processes.footprint import count_page_faults
from probes.microtrain.step import Step
from probes.workload.description import Mode, Plan

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
    faults, begun, steps = count_page_faults(), time.perf_counter(), 0
    while time.perf_counter() - begun < SECONDS:
        step()
        steps += 1
    return (time.perf_counter() - begun) / steps, (count_page_faults() - faults) / steps
