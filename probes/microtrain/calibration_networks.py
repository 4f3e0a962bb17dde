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
from probes.workload.description import Mode, Plan, Workload

CLOCKED_SHARE = 0.4  # of the networks' time is for clocking their operations
MOST_ROUNDS, LARGE_ROUNDS = 12, 2
EACH_SECONDS = 0.02  # beside the steps themselves: for each batch size of a network, in the sharing of the time
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
    workload: Workload
    trace: Trace
    weight: float  # of its share of the time


class NetworkContest:
    """Trace first, then measure network after network: plans of one take turns, as they are compared. Networks do not:
    steps that follow another network's find other caches and another heap than those of a long run."""

    def __init__(self, plans: Sequence[Plan]) -> None:
        self._plans = plans
        self._devices = frozenset(plan.device for plan in plans)
        self._rows: list[_Row] = []

    @property
    def size(self) -> int:
        """How many points there will be."""
        return sum(len(network.batch_sizes) for network in MICRO_NETWORKS) * len(MODES) * len(self._plans)

    def trace(self) -> None:
        left_out = IN_CONTEXTS if self._devices <= {"cpu"} else NOT_IN_PROFILES
        for network in MICRO_NETWORKS:
            for mode in MODES:
                workload = network.workload(mode)
                trace = trace_workload(workload)
                sizes = [*network.batch_sizes, *([network.large_batch] if network.large_batch else [])]
                weight = sum(EACH_SECONDS + _expected_seconds(trace, size) for size in sizes)
                self._rows.append(_Row(network, workload, replace(trace, **left_out), weight))
        self._rows.sort(key=lambda row: row.weight)  # large networks leave a large heap behind

    def measure(self, deadline: float, on_turn: Callable[[], object]) -> tuple[list[NetworkPoint], list[Context]]:
        """Until the deadline (time.perf_counter)."""
        points: list[NetworkPoint] = []
        contexts: list[Context] = []
        left = sum(row.weight for row in self._rows)
        for row in self._rows:
            now = time.perf_counter()
            found = self._measure_network(row, now + (deadline - now) * row.weight / left, on_turn)
            points += found[0]
            contexts += found[1]
            left -= row.weight
        return points, contexts

    def _measure_network(
        self, row: _Row, deadline: float, on_turn: Callable[[], object]
    ) -> tuple[list[NetworkPoint], list[Context]]:
        now = time.perf_counter()
        bench = Workbench(row.workload, self._devices)
        runs = [StepRun(bench, plan, size) for size in row.network.batch_sizes for plan in self._plans]
        entries = [Entry(index, run, setting=run.setting) for index, run in enumerate(runs)]
        Contest(entries, now + (deadline - now) * (1 - CLOCKED_SHARE), on_turn=on_turn).run()
        pairs = zip(runs, entries, strict=True)
        points = [point for run, entry in pairs if (point := _point_of(row, run, entry)) is not None]
        return points, self._clock(row, bench, runs, deadline, on_turn)

    def _clock(
        self, row: _Row, bench: Workbench, runs: Sequence[StepRun], deadline: float, on_turn: Callable[[], object]
    ) -> list[Context]:
        """What each operation takes inside the steps; rounds over all plans and batches until the time is over."""
        records: dict[object, list[Record]] = {}
        clocks = [StepClock(row, run, records) for run in runs if run.plan.is_cpu]
        large = row.network.large_batch
        rare = [StepClock(row, StepRun(bench, plan, large), records) for plan in self._plans if plan.is_cpu and large]
        for round_number in range(MOST_ROUNDS):
            for clock in [*clocks, *rare] if round_number < LARGE_ROUNDS else clocks:
                if time.perf_counter() > deadline:
                    break
                clock.take()
                on_turn()
        return [context for clock in (*clocks, *rare) if (context := clock.context()) is not None]


def _expected_seconds(trace: Trace, batch_size: int) -> float:
    """Of one step on a slow core; only to share the time out."""
    moved = sum(o.count * (o.read_bytes.at(batch_size) + o.written_bytes.at(batch_size)) for o in trace.operations)
    return trace.flops(batch_size) / 2e10 + moved / 4e9


class StepClock:
    """Clocks one network's step under one plan, again and again. What fails once is left out.

    records: what steps run, shared with the clocks of plans that differ in their threads alone.
    """

    def __init__(self, row: _Row, run: StepRun, records: dict[object, list[Record]]) -> None:
        self._row = row
        self._run = run
        self._key = (run.batch_size, run.plan.precision)
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
        name, mode, run = self._row.network.name, self._row.workload.mode, self._run
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
