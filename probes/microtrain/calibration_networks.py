"""Measures the micro-networks one after another, each in a fresh process, within the time of a calibration."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from probes.context import Context
from probes.microtrain import fresh_processes
from probes.microtrain.network_times import NetworkTimes, measure_network
from probes.microtrain.networks import MICRO_NETWORKS, MicroNetwork
from probes.microtrain.noise import QueueTime
from probes.microtrain.tracing import trace_workload
from probes.profile import NetworkPoint
from probes.trace import Trace
from probes.workload.description import Mode, Plan

EACH_SECONDS = 0.03  # beside the steps themselves: for each batch size of a network, in the sharing of the time

MODES: tuple[Mode, ...] = ("training", "inference")


@dataclass(frozen=True)
class _Row:
    network: MicroNetwork
    mode: Mode
    trace: Trace
    weight: float  # of its share of the time


class NetworkContest:
    """Trace first, then measure network after network: plans of one take turns, as they are compared. Networks do not:
    each has a process of its own, as steps that follow another network's find another heap than those of a user's
    process. A device's context takes seconds to begin: its plans are measured in this process.

    queue: how long the other processes ran and waited for a core, all together."""

    def __init__(self, plans: Sequence[Plan]) -> None:
        self._plans = plans
        self._rows: list[_Row] = []
        self.queue = QueueTime(0.0, 0.0)

    @property
    def size(self) -> int:
        """How many points there will be."""
        return sum(len(network.batch_sizes) for network in MICRO_NETWORKS) * len(MODES) * len(self._plans)

    def prepare(self) -> None:
        """Trace all; meanwhile the process that forks starts."""
        fresh_processes.prepare()
        for network in MICRO_NETWORKS:
            for mode in MODES:
                trace = trace_workload(network.workload(mode), plainly=True)
                sizes = [*network.batch_sizes, *([network.large_batch] if network.large_batch else [])]
                weight = sum(EACH_SECONDS + _expected_seconds(trace, size) for size in sizes)
                if all(plan.is_cpu for plan in self._plans):  # what a step runs on a CPU is in its contexts
                    trace = replace(trace, operations=())
                self._rows.append(_Row(network, mode, trace, weight))
        self._rows.sort(key=lambda row: row.weight)
        fresh_processes.wait_until_ready()

    def measure(self, deadline: float, on_turn: Callable[[], object]) -> tuple[list[NetworkPoint], list[Context]]:
        """Until the deadline (time.perf_counter)."""
        points: list[NetworkPoint] = []
        contexts: list[Context] = []
        left = sum(row.weight for row in self._rows)
        for row in self._rows:
            now = time.perf_counter()
            for times in self._measure_row(row, now + (deadline - now) * row.weight / left, on_turn):
                points += [NetworkPoint(row.network.name, *step, row.trace) for step in times.steps]
                contexts += times.contexts
            left -= row.weight
        return points, contexts

    def _measure_row(self, row: _Row, deadline: float, on_turn: Callable[[], object]) -> list[NetworkTimes]:
        """A network that does not get through, its process being killed for want of memory, has no times."""
        on_cpu = tuple(plan for plan in self._plans if plan.is_cpu)
        others = tuple(plan for plan in self._plans if not plan.is_cpu)
        found: list[NetworkTimes] = []
        if on_cpu:
            now = time.perf_counter()
            end = now + (deadline - now) * len(on_cpu) / len(self._plans)
            arguments = (row.network.name, row.mode, on_cpu, end)
            try:
                times = fresh_processes.run_fresh(measure_network, arguments, on_turn)
            except fresh_processes.EndedEarly:
                return found
            found.append(times)
            if times.queue is not None:
                self.queue = QueueTime(self.queue.ran + times.queue.ran, self.queue.waited + times.queue.waited)
        if others:
            found.append(measure_network(row.network.name, row.mode, others, deadline))
            on_turn()
        return found


def _expected_seconds(trace: Trace, batch_size: int) -> float:
    """Of one step on a slow core; only to share the time out."""
    moved = sum(o.count * (o.read_bytes.at(batch_size) + o.written_bytes.at(batch_size)) for o in trace.operations)
    return trace.flops(batch_size) / 6e10 + moved / 8e9 + 5e-6 * sum(o.count for o in trace.operations)
