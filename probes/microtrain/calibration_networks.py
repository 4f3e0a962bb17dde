"""Times the micro-networks' steps under every plan, each with its trace, and the operations inside them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from probes.context import Context
from probes.measurement import Timing
from probes.microtrain.contest import Contest, Entry
from probes.microtrain.networks import MICRO_NETWORKS, MicroNetwork
from probes.microtrain.operation_clock import clock_step, merge_costs, record_step
from probes.microtrain.recording import Record
from probes.microtrain.timing import significant
from probes.microtrain.tracing import trace_workload
from probes.microtrain.workbench import StepRun, Workbench
from probes.profile import NetworkPoint
from probes.trace import Trace
from probes.workload.description import Mode, Plan

CLOCKED_SHARE = 0.4  # of the networks' time is for clocking their operations
MOST_ROUNDS, LARGE_ROUNDS = 12, 2
LEAD_IN_SECONDS, CLOCKING_SECONDS = 0.006, 0.004

# What a step runs on a CPU is in its contexts, and memory is not estimated from a profile's networks.
NOT_IN_PROFILES: dict[str, Any] = {
    "autocast_operations": (), "autocast_peaks": (), "kernel_peaks": (), "autocast_kernel_peaks": ()
}  # fmt: skip
IN_CONTEXTS: dict[str, Any] = {**NOT_IN_PROFILES, "operations": ()}

MODES: tuple[Mode, ...] = ("training", "inference")


@dataclass(frozen=True)
class _Row:
    network: MicroNetwork
    trace: Trace
    bench: Workbench


class NetworkContest:
    """Trace first, then measure: tracing takes the same two cores."""

    def __init__(self, plans: Sequence[Plan]) -> None:
        self._plans = plans
        self._rows: list[_Row] = []

    @property
    def size(self) -> int:
        """How many points there will be."""
        sizes = sum(len(network.batch_sizes) for network in MICRO_NETWORKS)
        return sizes * len(MODES) * len(self._plans)

    def trace(self) -> None:
        devices = frozenset(plan.device for plan in self._plans)
        left_out = IN_CONTEXTS if devices <= {"cpu"} else NOT_IN_PROFILES
        for network in MICRO_NETWORKS:
            for mode in MODES:
                workload = network.workload(mode)
                trace = replace(trace_workload(workload), **left_out)
                self._rows.append(_Row(network, trace, Workbench(workload, devices)))

    def measure(self, deadline: float, on_turn: Callable[[], object]) -> tuple[list[NetworkPoint], list[Context]]:
        """Networks, batch sizes and plans take turns with each other until the deadline (time.perf_counter)."""
        now = time.perf_counter()
        runs = [
            (row, StepRun(row.bench, plan, size))
            for row in self._rows
            for size in row.network.batch_sizes
            for plan in self._plans
        ]
        entries = [Entry(index, run, setting=run.setting) for index, (_, run) in enumerate(runs)]
        Contest(entries, now + (deadline - now) * (1 - CLOCKED_SHARE), on_turn=on_turn).run()
        pairs = zip(runs, entries, strict=True)
        points = [point for (row, run), entry in pairs if (point := _point_of(row, run, entry)) is not None]
        return points, self._clock(runs, deadline, on_turn)

    def _clock(
        self, runs: Sequence[tuple[_Row, StepRun]], deadline: float, on_turn: Callable[[], object]
    ) -> list[Context]:
        """What each operation takes inside the steps; rounds over all networks until the time is over."""
        records: dict[object, list[Record]] = {}
        large = [
            StepClock(row, StepRun(row.bench, plan, row.network.large_batch), records)
            for row in self._rows
            for plan in self._plans
            if row.network.large_batch is not None and plan.is_cpu
        ]
        clocks = [StepClock(row, run, records) for row, run in runs if run.plan.is_cpu]
        for round_number in range(MOST_ROUNDS):
            for clock in [*clocks, *large] if round_number < LARGE_ROUNDS else clocks:
                if time.perf_counter() > deadline:
                    break
                clock.take()
                on_turn()
        clocks += large
        return [context for clock in clocks if (context := clock.context()) is not None]


class StepClock:
    """Clocks one network's step under one plan, again and again. What fails once is left out.

    records: what steps run, shared with the clocks of plans that differ in their threads alone.
    """

    def __init__(self, row: _Row, run: StepRun, records: dict[object, list[Record]]) -> None:
        self._row = row
        self._run = run
        self._key = (id(row), run.batch_size, run.plan.precision)
        self._records = records
        self._clocked: list[list[float]] = []
        self._failed = False

    def take(self) -> None:
        """Some steps, as in a long run: caches, allocator and branch predictors belonged to whoever ran last."""
        if self._failed:
            return
        try:
            with self._run.setting():
                step = self._run.prepared()
                if self._key not in self._records:
                    self._records[self._key] = record_step(step)
                _repeat(step, LEAD_IN_SECONDS)
                _repeat(lambda: self._clocked.append(clock_step(step)), CLOCKING_SECONDS)
        except Exception:  # noqa: BLE001 - a network that does not run under a plan is no point of it
            self._failed = True

    def context(self) -> Context | None:
        operations = merge_costs(self._records.get(self._key, ()), self._clocked)
        name, mode, run = self._row.network.name, self._row.bench.workload.mode, self._run
        return Context(name, run.batch_size, mode, run.plan, operations) if operations else None


def _repeat(action: Callable[[], object], seconds: float) -> None:
    """Once, and again as long as there is time."""
    end = time.perf_counter() + seconds
    action()
    while time.perf_counter() < end:
        action()


def _point_of(row: _Row, run: StepRun, entry: Entry) -> NetworkPoint | None:
    samples, _ = entry.settled_samples()
    if entry.error is not None or not samples:
        return None
    timing = Timing.from_samples([significant(sample, 4) for sample in samples])
    return NetworkPoint(row.network.name, run.batch_size, run.plan, timing, row.trace)
