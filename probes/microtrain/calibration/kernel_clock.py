"""What each operation's kernels take on a device inside the micro-networks' steps, by a process of its own.

Once torch's profiler has watched, issuing takes longer in a process (overheads.measure_busy_share), and whole steps are
not to be timed there any more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from probes.context import Context
from probes.microtrain.calibration.device_clock import DeviceCost, clock_device_steps
from probes.microtrain.calibration.device_networks import device_sizes, warmed_up
from probes.microtrain.calibration.networks import MICRO_NETWORKS
from probes.microtrain.calibration.operation_clock import ClockedStep, merge_costs, record_operations
from probes.microtrain.measuring.device_cache import empty_device_cache
from probes.microtrain.measuring.workbench import StepRun, Workbench
from probes.microtrain.processes import fresh_processes
from probes.microtrain.processes.fresh_processes import EndedEarly, Fresh
from probes.microtrain.traces.recording import Record
from probes.workload.description import Mode, Plan

CLOCKED_STEPS = 2

Question = tuple[str, Mode, tuple[Plan, ...], float]  # network, mode, plans of one device, seconds there are


class KernelClock:
    """Its process is started with the first question, and keeps the device's context for the next."""

    def __init__(self) -> None:
        self._process: Fresh | None = None

    def contexts(self, network: str, mode: Mode, plans: Sequence[Plan], seconds: float) -> list[Context]:
        """Of a micro-network's steps, by the device's clock, within about so long. Nothing where no process can be
        forked, there is no profiler, or another one has it."""
        question: Question = (network, mode, tuple(plans), seconds)
        try:
            if self._process is None and fresh_processes.is_prepared():
                self._process = Fresh(_serve, ())
            found: list[Context] = [] if self._process is None else self._process.ask(question)
        except EndedEarly:
            self.end()
            return []
        return found

    def end(self) -> None:
        if self._process is not None:
            self._process.end()
            self._process = None


def _serve(serve: Callable[[Callable[[Any], object]], object]) -> None:
    """In the other process."""
    serve(_answer)


def _answer(question: Question) -> list[Context]:
    """What it computed with is given back: the process that asks has the same need of the device's memory next."""
    contexts = list(clock_network(*question))
    empty_device_cache()
    return contexts


def clock_network(name: str, mode: Mode, plans: Sequence[Plan], seconds: float) -> Iterator[Context]:
    """Nothing where the device's clock cannot be read. Whole steps are not to be timed in this process afterwards."""
    deadline = time.perf_counter() + seconds
    network = next(network for network in MICRO_NETWORKS if network.name == name)
    bench = Workbench(network.workload(mode), frozenset(plan.device for plan in plans))
    runs = warmed_up(bench, device_sizes(network, mode), plans, deadline)
    records: dict[tuple[int, str], list[Record]] = {}
    try:
        found = clock_device_steps(runs, CLOCKED_STEPS)
        for run in runs:
            if _shapes_key(run) not in records:
                with run.setting():
                    records[_shapes_key(run)] = record_operations(run.prepared())
    except Exception:  # noqa: BLE001 - the steps' times stand without it
        return
    for run, steps in zip(runs, found, strict=True):
        yield from kernel_context(name, mode, run, records[_shapes_key(run)], steps)


def kernel_context(
    name: str, mode: Mode, run: StepRun, records: Sequence[Record], steps: Sequence[Sequence[DeviceCost]]
) -> Iterator[Context]:
    """Of the operations that have kernels in every step; none where none has."""
    whole = [[cost.seconds for cost in step] for step in steps if len(step) == len(records)]  # others ran another thing
    ran = [place for place in range(len(records)) if all(step[place] > 0 for step in whole)]
    costs = merge_costs(
        [records[place] for place in ran], [ClockedStep([step[place] for place in ran]) for step in whole]
    )
    if costs:
        yield Context(name, run.batch_size, mode, run.plan, costs, clock="device")


def _shapes_key(run: StepRun) -> tuple[int, str]:
    """Of runs whose operations are the same: tf32 is another way to compute them."""
    return run.batch_size, "fp32" if run.plan.precision == "tf32" else run.plan.precision
