"""Measures the micro-networks one after another, each in a fresh process, within the time of a calibration."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from statistics import fmean

from probes.context import Context
from probes.microtrain import fresh_processes
from probes.microtrain.network_times import NetworkTimes, StepTime, measure_network
from probes.microtrain.networks import MICRO_NETWORKS, MicroNetwork
from probes.microtrain.noise import QueueTime
from probes.microtrain.operation_clock import quieter_costs
from probes.microtrain.timing import significant
from probes.microtrain.tracing import trace_workload
from probes.profile import NetworkPoint
from probes.trace import Trace
from probes.workload.description import Mode, Plan

EACH_SECONDS = 0.03  # beside the steps themselves: for each batch size of a network, in the sharing of the time

# A neighbour's burst lasts for seconds: networks of which all plans and batch sizes can be run once in less time than
# this (on a slow core, as _expected_seconds has it) are measured again half a calibration later, in another process.
REVISITED_SECONDS = 0.4


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

    queue: how long the other processes ran and waited for a core, all together. visits: how many times as long the
    slower visit took, of each plan and batch size that had two."""

    def __init__(self, plans: Sequence[Plan]) -> None:
        self._plans = plans
        self._rows: list[_Row] = []
        self.queue = QueueTime(0.0, 0.0)
        self.visits: list[float] = []

    @property
    def size(self) -> int:
        """How many points there will be."""
        sizes = sum(len(network.sizes(mode)) for network in MICRO_NETWORKS for mode in network.modes)
        return sizes * len(self._plans)

    def prepare(self) -> None:
        """Trace all; meanwhile the process that forks starts."""
        fresh_processes.prepare()
        for network in MICRO_NETWORKS:
            for mode in network.modes:
                trace = trace_workload(network.workload(mode), plainly=True)
                sizes = [*network.sizes(mode), *([network.large_batch] if network.large_batch else [])]
                weight = sum(EACH_SECONDS + _expected_seconds(trace, size) for size in sizes)
                if all(plan.is_cpu for plan in self._plans):  # what a step runs on a CPU is in its contexts
                    trace = replace(trace, operations=())
                self._rows.append(_Row(network, mode, trace, weight))
        self._rows.sort(key=lambda row: row.weight)
        fresh_processes.wait_until_ready()

    def measure(self, deadline: float, on_turn: Callable[[], object]) -> tuple[list[NetworkPoint], list[Context]]:
        """Until the deadline (time.perf_counter)."""
        rounds = [self._rows, [row for row in self._rows if row.weight * len(self._plans) < REVISITED_SECONDS]]
        left = sum(row.weight for rows in rounds for row in rows)
        found: dict[int, list[NetworkTimes]] = defaultdict(list)
        for row in chain.from_iterable(rounds):
            now = time.perf_counter()
            if now > deadline and found[id(row)]:
                break  # a second visit is worth no lateness
            found[id(row)].append(self._measure_row(row, now + (deadline - now) * row.weight / left, on_turn))
            left -= row.weight
        fresh_processes.end()
        points: list[NetworkPoint] = []
        contexts: list[Context] = []
        for row in self._rows:
            times, ratios = quieter(found[id(row)])
            self.visits += ratios
            points += [
                NetworkPoint(row.network.name, size, plan, seconds, row.trace, faults)
                for size, plan, seconds, faults in times.steps
            ]
            contexts += times.contexts
        return points, contexts

    def _measure_row(self, row: _Row, deadline: float, on_turn: Callable[[], object]) -> NetworkTimes:
        """A network that does not get through, its process being killed for want of memory, has no times."""
        on_cpu = tuple(plan for plan in self._plans if plan.is_cpu)
        others = tuple(plan for plan in self._plans if not plan.is_cpu)
        steps: list[StepTime] = []
        contexts: list[Context] = []
        if on_cpu:
            now = time.perf_counter()
            end = now + (deadline - now) * len(on_cpu) / len(self._plans)
            arguments = (row.network.name, row.mode, on_cpu, end)
            try:
                times = fresh_processes.run_fresh(measure_network, arguments, on_turn)
            except fresh_processes.EndedEarly:
                return NetworkTimes([], [], None)
            steps, contexts = times.steps, times.contexts
            if times.queue is not None:
                self.queue = QueueTime(self.queue.ran + times.queue.ran, self.queue.waited + times.queue.waited)
        if others:
            times = measure_network(row.network.name, row.mode, others, deadline)
            steps, contexts = [*steps, *times.steps], [*contexts, *times.contexts]
            on_turn()
        return NetworkTimes(steps, contexts, None)


def quieter(visits: Sequence[NetworkTimes]) -> tuple[NetworkTimes, list[float]]:
    """Of each plan and batch size the visit in which it was faster, and of each operation, as others make steps longer
    and never shorter; with both visits' page faults: they come with a process's heap. Beside it, how many times as long
    the slower visit took."""
    by_step: dict[object, list[StepTime]] = defaultdict(list)
    by_context: dict[object, list[Context]] = defaultdict(list)
    for visit in visits:
        for step in visit.steps:
            by_step[step.batch_size, step.plan.key].append(step)
        for context in visit.contexts:
            by_context[context.batch_size, context.plan.key].append(context)
    steps = [
        min(found, key=lambda step: step.seconds.median)._replace(
            page_faults=significant(fmean(step.page_faults for step in found), 4)
        )
        for found in by_step.values()
    ]
    ratios = [
        max(step.seconds.median for step in found) / min(step.seconds.median for step in found)
        for found in by_step.values()
        if len(found) > 1
    ]
    contexts = [
        replace(found[0], costs=quieter_costs([context.costs for context in found])) for found in by_context.values()
    ]
    return NetworkTimes(steps, contexts, None), ratios


def _expected_seconds(trace: Trace, batch_size: int) -> float:
    """Of one step on a slow core; only to share the time out."""
    moved = sum(o.count * (o.read_bytes.at(batch_size) + o.written_bytes.at(batch_size)) for o in trace.operations)
    return trace.flops(batch_size) / 6e10 + moved / 8e9 + 5e-6 * sum(o.count for o in trace.operations)
