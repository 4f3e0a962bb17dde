"""Times the micro-networks' steps under every plan, each with its trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from probes.measurement import Timing
from probes.microtrain.constants.bench import Effort
from probes.microtrain.contest import Contest, Entry
from probes.microtrain.networks import MICRO_NETWORKS, MicroNetwork
from probes.microtrain.timing import significant
from probes.microtrain.tracing import trace_workload
from probes.microtrain.workbench import StepRun, Workbench
from probes.profile import NetworkPoint
from probes.trace import Trace
from probes.workload.description import Mode, Plan

MODES: dict[Effort, tuple[Mode, ...]] = {"quick": ("training",), "full": ("training", "inference")}


@dataclass(frozen=True)
class _Row:
    network: MicroNetwork
    trace: Trace
    bench: Workbench


class NetworkContest:
    """Trace first, then measure: tracing takes the same two cores."""

    def __init__(self, plans: Sequence[Plan], effort: Effort) -> None:
        self._plans = plans
        self._modes = MODES[effort]
        self._rows: list[_Row] = []

    @property
    def size(self) -> int:
        """How many points there will be."""
        sizes = sum(len(network.batch_sizes) for network in MICRO_NETWORKS)
        return sizes * len(self._modes) * len(self._plans)

    def trace(self) -> None:
        devices = frozenset(plan.device for plan in self._plans)
        for network in MICRO_NETWORKS:
            for mode in self._modes:
                workload = network.workload(mode)
                self._rows.append(_Row(network, trace_workload(workload), Workbench(workload, devices)))

    def measure(self, deadline: float, on_turn: Callable[[], object]) -> list[NetworkPoint]:
        """Networks, batch sizes and plans take turns with each other until the deadline (time.perf_counter)."""
        pairs = [
            (row, StepRun(row.bench, plan, size))
            for row in self._rows
            for size in row.network.batch_sizes
            for plan in self._plans
        ]
        entries = [Entry(index, run, setting=run.setting) for index, (_, run) in enumerate(pairs)]
        Contest(entries, deadline, on_turn=on_turn).run()
        points = (_point_of(row, run, entry) for (row, run), entry in zip(pairs, entries, strict=True))
        return [point for point in points if point is not None]


def _point_of(row: _Row, run: StepRun, entry: Entry) -> NetworkPoint | None:
    samples, _ = entry.settled_samples()
    if entry.error is not None or not samples:
        return None
    timing = Timing.from_samples([significant(sample, 4) for sample in samples])
    return NetworkPoint(row.network.name, run.batch_size, run.plan, timing, row.trace)
