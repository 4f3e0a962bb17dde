"""Measures the overheads of every plan after the contest, sharing what plans have in common."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from probes.measurement import Overheads
from probes.microtrain.measuring.counting import OperationCounts, count_operations
from probes.microtrain.measuring.overheads import (
    DispatchCosts,
    cpu_overheads,
    cuda_overheads,
    measure_busy_share,
    measure_dispatch,
)
from probes.microtrain.measuring.workbench import StepRun, Workbench
from probes.microtrain.step import Step, applied
from probes.microtrain.timing import significant
from probes.workload.description import Precision

CUDA_STEPS = 20  # that measuring one plan's overheads on a device takes, about
COUNTING_SLOWDOWN = 3.0  # a step whose operations are counted, against one that is not


@dataclass
class OverheadMeter:
    """deadline: on time.perf_counter. What cannot be had before it is None."""

    bench: Workbench
    deadline: float
    _counts: dict[tuple[Precision, int], OperationCounts] = field(default_factory=dict)
    _costs: dict[Precision, DispatchCosts] = field(default_factory=dict)

    def measure(self, run: StepRun, step_seconds: float) -> Overheads | None:
        """None when there is no time left for it, or no step of it ran."""
        if not run.has_run or time.perf_counter() >= self.deadline:
            return None
        with applied(run.plan):
            step = run.prepared()  # made anew where another batch size was held alone since
            measured = self._cpu(run, step, step_seconds) if run.plan.is_cpu else self._cuda(run, step, step_seconds)
        return None if measured is None else _rounded(measured)

    def _cpu(self, run: StepRun, step: Step, step_seconds: float) -> Overheads | None:
        if self.bench.build().compiled:  # its operations are not torch's
            return None
        key = (run.plan.precision, run.batch_size)
        if key not in self._counts:
            if not self._affords(COUNTING_SLOWDOWN * step_seconds):
                return None
            self._counts[key] = count_operations(step)
        if run.plan.precision not in self._costs:
            workload = self.bench.workload
            self._costs[run.plan.precision] = measure_dispatch(workload.mode, workload.optimizer, run.plan.precision)
        return cpu_overheads(step_seconds, self._counts[key], self._costs[run.plan.precision])

    def _cuda(self, run: StepRun, step: Step, step_seconds: float) -> Overheads | None:
        if not self._affords(CUDA_STEPS * step_seconds):
            return None
        workload = self.bench.workload
        return cuda_overheads(step, self.bench.ring(run.batch_size)[0], workload.data, step_seconds)

    def measure_busy(self, run: StepRun, step_seconds: float) -> float | None:
        """Of a step on a device, the share in which the device computes: when nothing else is left to be measured in
        this process (overheads.measure_busy_share). None when there is no time left for it, or no step of it ran."""
        if not run.has_run or run.plan.is_cpu or not self._affords(CUDA_STEPS * step_seconds):
            return None
        with applied(run.plan):
            share = measure_busy_share(run.prepared(), self.bench.ring(run.batch_size)[0], step_seconds)
        return None if share is None else significant(share)

    def _affords(self, seconds: float) -> bool:
        return time.perf_counter() + seconds < self.deadline


def _rounded(overheads: Overheads) -> Overheads:
    """To what a clock can tell."""

    def tell(value: float | None) -> float | None:
        return None if value is None else significant(value)

    return Overheads(
        tell(overheads.transfer_seconds),
        tell(overheads.launch_seconds),
        tell(overheads.synchronize_seconds),
        tell(overheads.compute_seconds),
        tell(overheads.device_busy),
    )
