"""Measures the micro-networks one after another, each in a fresh process, within the time of a calibration."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import get_args

from probes.context import Context
from probes.measurement import Timing
from probes.microtrain.calibration.device_networks import measure_on_device
from probes.microtrain.calibration.kernel_clock import KernelClock
from probes.microtrain.calibration.network_times import NetworkTimes, StepTime, measure_network
from probes.microtrain.calibration.networks import MICRO_NETWORKS, MicroNetwork
from probes.microtrain.calibration.operation_clock import ALIKE, quieter_costs
from probes.microtrain.processes import fresh_processes
from probes.microtrain.quiet.calm import Calm
from probes.microtrain.quiet.noise import QueueTime
from probes.microtrain.timing import significant
from probes.microtrain.tracing import trace_workload
from probes.points import NetworkPoint
from probes.reckoned import on_calm_cores
from probes.trace import Affine, Trace
from probes.workload.description import Mode, Plan, Workload

# What a network needs, for the sharing of the time: a process that builds it; for each plan and batch size some short
# steps, and of long ones so many that are clocked, with those that lead to it, and a third as many that are timed, as
# larger batches are where there is time.
NETWORK_SECONDS, EACH_SECONDS = 0.1, 0.03
TIMED_STEPS, CLOCKED_STEPS = 1.0, 3.0
# A neighbour's burst lasts for seconds: networks that need less than this are measured again later, in another process,
# where there is time.
REVISITED_SECONDS = 1.0
# And before those the ones of which such a share had no turn, or none on a calm machine.
DISTURBED = 0.25
# A training step is about three forwards and an optimizer's step: AdamW reads weights, gradients and two states, writes
# three of them, and makes temporaries, in a dozen operations a tensor.
TRAINING_FORWARDS = 3.0
ADAMW_TRAFFIC, ADAMW_OPERATIONS = 12.0, 12
# For devices, of a network's time, where there are any.
DEVICES_SHARE = 0.5
KERNELS_SHARE = 0.4  # and of a device's, for the kernels inside its steps
# However late it is, so many are measured: fewer would tell nothing.
LEAST_ROWS = 8
# How slow a plan will be in a network is taken from the last so many, which are nearly as large.
SLOWNESS_NETWORKS = 3


@dataclass(frozen=True)
class _Row:
    network: MicroNetwork
    mode: Mode
    trace: Trace
    need: float  # seconds on a slow core until every plan and batch size had a turn


class NetworkContest:
    """Trace first, then measure network after network: plans of one take turns, as they are compared. Networks do not:
    each has a process of its own, as steps that follow another network's find another heap than those of a user's
    process. A device's context takes seconds to begin: its plans are measured in this process.

    calms: by threads, how quick the cores can be; learns it. queue: how long the other processes ran and waited for a
    core, all together. visits: how many times as long the slower visit took, of each plan and batch size that had two.
    slow_fraction: of plans and batch sizes, how many never met a calm machine, in the better of the visits of each
    network; None: none was measured."""

    def __init__(self, plans: Sequence[Plan], calms: MutableMapping[int | None, Calm]) -> None:
        self._plans = plans
        self._calms = calms
        self._rows: list[_Row] = []
        self._kernels = KernelClock()
        self._rows_on_devices = 0
        self.queue = QueueTime(0.0, 0.0)
        self.visits: list[float] = []
        self.slow_fraction: float | None = None
        self._slowness: dict[Mode, dict[object, deque[float]]] = {
            mode: defaultdict(lambda: deque(maxlen=SLOWNESS_NETWORKS)) for mode in get_args(Mode)
        }

    @property
    def size(self) -> int:
        """How many points there are where the time does for all."""
        timed = [network for network in MICRO_NETWORKS if network.timed]
        sizes = sum(len(network.sizes(mode)) for network in timed for mode in network.modes)
        return sizes * len(self._plans)

    def prepare(self) -> None:
        """Trace all; meanwhile the process that forks starts."""
        fresh_processes.prepare()
        for network in MICRO_NETWORKS:
            forward = trace_workload(network.workload("inference"), plainly=True)
            for mode in network.modes:
                need = NETWORK_SECONDS + len(self._plans) * _needed_seconds(network, forward, mode)
                self._rows.append(_Row(network, mode, _named(forward, network.workload(mode)), need))
        self._rows.sort(key=lambda row: row.need)
        if any(not plan.is_cpu for plan in self._plans):
            self._rows = of_each_kind_first(self._rows)
        fresh_processes.wait_until_ready()

    def measure(self, deadline: float, on_turn: Callable[[], object]) -> tuple[list[NetworkPoint], list[Context]]:
        """Until the deadline (time.perf_counter)."""
        again = sum(row.need for row in self._rows if row.need < REVISITED_SECONDS)
        left = sum(row.need for row in self._rows)
        found: dict[int, list[NetworkTimes]] = defaultdict(list)
        for row in self._visits(found):
            now = time.perf_counter()
            if now > deadline and len(found) >= min(LEAST_ROWS, len(self._rows)):
                break  # the largest come last, and then those that have been visited
            if id(row) in found:
                share = row.need
            else:  # all of it where it does not do for all, else with some left to come again
                share = (deadline - now) * row.need / (left + min(again, max(deadline - now - left, 0.0)))
                left -= row.need
            found[id(row)].append(self._measure_row(row, now + min(share, deadline - now), on_turn))
        self._kernels.end()
        fresh_processes.end()
        ran = [[visit for visit in visits if visit.steps or visit.contexts] for visits in found.values()]
        calmest = [min(visit.disturbed for visit in visits) for visits in ran if visits]
        on_cpu = any(plan.is_cpu for plan in self._plans)
        self.slow_fraction = significant(fmean(calmest)) if calmest and on_cpu else None
        points: list[NetworkPoint] = []
        contexts: list[Context] = []
        for row in self._rows:
            times, ratios = quieter(found[id(row)])
            self.visits += ratios
            points += [
                NetworkPoint(row.network.name, size, plan, seconds, row.trace, faults, reckoned)
                for size, plan, seconds, faults, reckoned in times.steps
            ]
            contexts += times.contexts
        return points, contexts

    def _visits(self, found: Mapping[int, Sequence[NetworkTimes]]) -> Iterator[_Row]:
        """All rows, and some again: those that had too few turns, or met a slow machine, and those that need little."""
        yield from self._rows
        wanting = {id(row): _wanting(found[id(row)][0]) for row in self._rows if id(row) in found}
        first = sorted(self._rows, key=lambda row: -wanting.get(id(row), 0.0))
        yield from (row for row in first if wanting.get(id(row), 0.0) >= DISTURBED)
        yield from (row for row in self._rows if wanting.get(id(row), 0.0) < DISTURBED and row.need < REVISITED_SECONDS)

    def _measure_row(self, row: _Row, deadline: float, on_turn: Callable[[], object]) -> NetworkTimes:
        """A network that does not get through, its process being killed for want of memory, has no times."""
        on_cpu = tuple(plan for plan in self._plans if plan.is_cpu)
        others = tuple(plan for plan in self._plans if not plan.is_cpu)
        steps: list[StepTime] = []
        contexts: list[Context] = []
        disturbed = missed = 0.0
        if on_cpu:
            now = time.perf_counter()
            end = now + (deadline - now) * (1.0 - _devices_share(len(others), len(self._plans)))
            arguments = (row.network.name, row.mode, on_cpu, end, self._slowest(row.mode), self._paces())
            try:
                times = fresh_processes.run_fresh(measure_network, arguments, on_turn)
            except fresh_processes.EndedEarly:
                return NetworkTimes([], [], None)
            steps, contexts = times.steps, times.contexts
            self._learn(row.mode, times)
            for threads, pace in times.paces.items():
                self._calms.setdefault(threads, Calm()).learn((pace,))
            disturbed, missed = times.disturbed, times.missed
            if times.queue is not None:
                self.queue = QueueTime(self.queue.ran + times.queue.ran, self.queue.waited + times.queue.waited)
        devices = self._devices_in_turn(others)
        for left, device in zip(range(len(devices), 0, -1), devices, strict=True):
            plans = [plan for plan in others if plan.device == device]
            now = time.perf_counter()
            end = now + (deadline - now) / left
            times = measure_on_device(row.network, row.mode, plans, now + (end - now) * (1.0 - KERNELS_SHARE))
            on_turn()
            kernels = self._kernels.contexts(row.network.name, row.mode, plans, end - time.perf_counter())
            steps, contexts = [*steps, *times.steps], [*contexts, *times.contexts, *kernels]
            on_turn()
        return NetworkTimes(steps, contexts, None, disturbed=disturbed, missed=missed)

    def _devices_in_turn(self, plans: Sequence[Plan]) -> list[str]:
        """Another one first in each row: what one leaves of the time the later ones have more of."""
        devices = list(dict.fromkeys(plan.device for plan in plans))
        first = self._rows_on_devices % max(len(devices), 1)
        self._rows_on_devices += 1
        return [*devices[first:], *devices[:first]]

    def _paces(self) -> dict[int | None, float]:
        return {threads: calm.best for threads, calm in self._calms.items() if calm.best is not None}

    def _learn(self, mode: Mode, times: NetworkTimes) -> None:
        for key, slowness in times.slowness.items():
            self._slowness[mode][key].append(slowness)

    def _slowest(self, mode: Mode) -> dict[object, float]:
        return {key: max(lately) for key, lately in self._slowness[mode].items()}


def of_each_kind_first(rows: Sequence[_Row]) -> list[_Row]:
    """On a device, where the first steps of any network cost the most, all take about as long, and the time may not do
    for all: one of each kind (its name's first word), then the second of each, and of one place a training step first,
    as it runs what one of inference does, and more. The networks of Python come last: for the first steps of the rare
    operations a device loads kernels for seconds, and the loop issues thousands."""
    kinds: dict[tuple[str, Mode], int] = defaultdict(int)
    order: dict[int, tuple[bool, int, bool]] = {}
    for row in rows:
        kind = (row.network.name.partition("-")[0], row.mode)
        order[id(row)] = (isinstance(row.network.layers, str), kinds[kind], row.mode == "inference")
        kinds[kind] += 1
    return sorted(rows, key=lambda row: order[id(row)])


def _devices_share(others: int, plans: int) -> float:
    """Of a network's time. A machine with many cores has many plans for them, which are like each other."""
    return 0.0 if others == 0 else max(DEVICES_SHARE, others / plans)


def _wanting(times: NetworkTimes) -> float:
    """Of its turns, how many it had not for want of time, or on slow cores only. What fails, is too slow for its share
    or is killed lacks nothing that another visit would bring."""
    return 1.0 - (1.0 - times.disturbed) * (1.0 - times.missed)


def quieter(visits: Sequence[NetworkTimes]) -> tuple[NetworkTimes, list[float]]:
    """Of each plan and batch size the visits that took nearly as long as the faster, as others make steps longer and
    never shorter, and of its operations alike, without those that are reckoned where one met calm cores; with all
    visits' page faults: they come with a process's heap. Beside it, how many times as long the slower visit took."""
    by_step: dict[object, list[StepTime]] = defaultdict(list)
    by_context: dict[object, list[Context]] = defaultdict(list)
    for visit in visits:
        for step in visit.steps:
            by_step[step.batch_size, step.plan.key].append(step)
        for context in visit.contexts:
            by_context[context.batch_size, context.plan.key, context.clock].append(context)
    steps = [_quieter_step(found) for found in by_step.values()]
    ratios = [
        max(step.seconds.median for step in found) / min(step.seconds.median for step in found)
        for found in by_step.values()
        if len(found) > 1
    ]
    contexts = [
        replace(found[0], costs=quieter_costs([context.costs for context in found]))
        for found in map(on_calm_cores, by_context.values())
    ]
    return NetworkTimes(steps, contexts, None), ratios


def _quieter_step(visits: Sequence[StepTime]) -> StepTime:
    """By the same rule as its operations (quieter_costs): what the two differ by is what issuing is told to take."""
    counting = on_calm_cores(visits)
    least = min(step.seconds.median for step in counting)
    alike = [step for step in counting if step.seconds.median <= ALIKE * least]
    faults = significant(fmean(step.page_faults for step in visits), 4)
    timing = Timing.from_samples([sample for step in alike for sample in step.seconds.samples])
    return alike[0]._replace(seconds=timing if len(alike) > 1 else alike[0].seconds, page_faults=faults)


def _named(forward: Trace, workload: Workload) -> Trace:
    """Which network that is. What a step runs is in its contexts, and tracing all of them in training would take an
    eighth of a calibration's time."""
    nothing = Affine(0.0, 0.0)
    return replace(
        forward,
        mode=workload.mode,
        optimizer=workload.optimizer,
        operations=(),
        activation_bytes=nothing,
        activation_peaks=(),
        update_peaks=(),
        issued=None,
    )


def _needed_seconds(network: MicroNetwork, trace: Trace, mode: Mode) -> float:
    """Of one plan on a slow core, until all batch sizes had a turn. trace: of its step, or of its forward."""
    steps = CLOCKED_STEPS + (TIMED_STEPS if network.timed else 0.0)
    needed = sum(EACH_SECONDS + steps * _expected_seconds(trace, mode, size) for size in network.sizes(mode))
    if network.large_batch is not None:
        needed += EACH_SECONDS + CLOCKED_STEPS * _expected_seconds(trace, mode, network.large_batch)
    return needed


def _expected_seconds(trace: Trace, mode: Mode, batch_size: int) -> float:
    """Of one step on a slow core, from a trace of it or of its forward; only to share the time out."""
    operations = trace.operation_count()
    moved = sum(o.count * (o.read_bytes.at(batch_size) + o.written_bytes.at(batch_size)) for o in trace.operations)
    seconds = trace.flops(batch_size) / 6e10 + moved / 8e9 + 5e-6 * operations
    if mode == trace.mode:
        return seconds
    optimizer = ADAMW_TRAFFIC * trace.parameter_bytes / 8e9 + 5e-6 * ADAMW_OPERATIONS * trace.parameter_tensors
    return TRAINING_FORWARDS * seconds + optimizer
