"""What a measurement tells of its plans: a row each, also of those that had no step."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from probes.measurement import Measurement, MemoryPeak, Overheads, Timing
from probes.microtrain.failures import explain_step_failure
from probes.microtrain.measuring.contest import NOT_BEGUN, Contest, OutOfTime
from probes.microtrain.measuring.entry import Entry
from probes.microtrain.measuring.measure_job import MeasureJob
from probes.microtrain.measuring.plan_process import PlanProcess
from probes.microtrain.measuring.workbench import StepRun
from probes.microtrain.timing import relative_spread, significant
from probes.workload.description import Plan


@dataclass(frozen=True, slots=True)
class MeasuredRows:
    """Of a measurement that has ended, or of which no more is waited for. begun: on time.perf_counter. runs, overheads:
    by the entry's id. denormals: by precision and batch size."""

    job: MeasureJob
    begun: float
    contest: Contest
    runs: Mapping[int, StepRun | PlanProcess]
    overheads: Mapping[int, Overheads]
    denormals: Mapping[tuple[str, int], float]

    def all(self, refused: Sequence[Measurement], first_step_of: tuple[Plan, int] | None = None) -> list[Measurement]:
        """One of each plan and batch size, in the job's order. refused: those that had no entry. first_step_of: whose
        step was begun before any had one."""
        rows = [*(self._describe(entry) for entry in self.contest.entries), *refused]
        rows += self._untold({(row.plan.key, row.batch_size) for row in rows}, first_step_of)
        order = {(plan.key, size): i for i, (size, plan) in enumerate(self._pairs())}
        return sorted(rows, key=lambda row: order[(row.plan.key, row.batch_size)])

    def paces(self) -> dict[str, float]:
        """By the threads of plans on the CPU, seconds of the fixed work beside the sample that met the quickest cores;
        none where nothing read how quick they were."""
        found: dict[str, float] = {}
        for entry in self.contest.entries:
            threads = self.runs[id(entry)].plan.threads
            for reading in entry.readings:
                if threads is not None and reading is not None:
                    found[str(threads)] = min(significant(reading), found.get(str(threads), math.inf))
        return found

    def _untold(self, told: set[tuple[object, int]], first_step_of: tuple[Plan, int] | None) -> list[Measurement]:
        """Of those not told yet: the time was over before there was anything to run, while the model was built, or
        while the step ran that shows how long one takes."""
        seconds = time.perf_counter() - self.begun
        reason = f"The model was not built after {seconds:.0f} s. A smaller model or more time would do."
        if self.job.workload.model.kind == "python":
            reason = f"Your function had given no model after {seconds:.0f} s. One that returns sooner would do."
        begun = None
        if first_step_of is not None:
            begun, reason = (first_step_of[0].key, first_step_of[1]), NOT_BEGUN
        return [
            Measurement(
                plan,
                size,
                self.job.workload.data,
                "failed",
                _why_not_done(seconds) if (plan.key, size) == begun else reason,
            )
            for size, plan in self._pairs()
            if (plan.key, size) not in told
        ]

    def _pairs(self) -> list[tuple[int, Plan]]:
        return [(size, plan) for size in self.job.batch_sizes for plan in self.job.plans]

    def _describe(self, entry: Entry) -> Measurement:
        run = self.runs[id(entry)]
        samples, steady = entry.settled_samples()
        data = self.job.workload.data
        if entry.error is not None or not samples:
            begun = entry is self.contest.current or entry.first_seconds is not None
            seconds = time.perf_counter() - self.begun
            outcome, reason = explain_outcome(entry, seconds, begun=begun, on_cpu=run.plan.is_cpu)
            return Measurement(run.plan, run.batch_size, data, outcome, reason)
        timing = Timing.from_samples([significant(sample) for sample in samples])
        slowdown = entry.slowdown
        return Measurement(
            run.plan,
            run.batch_size,
            data,
            "ok",
            step=timing,
            steps=entry.executions or sum(s is not None for s in (entry.first_seconds, entry.warm_seconds)),
            steady=steady,
            startup_seconds=self._startup_seconds(entry),
            overheads=self.overheads.get(id(entry)),
            memory=self._memory_of(entry),
            slow_share=None if slowdown is None else significant(slowdown.share, 3),
            slowdown=None if slowdown is None or slowdown.factor is None else significant(slowdown.factor, 3),
            denormal_share=self.denormals.get((run.plan.precision, run.batch_size)) if run.plan.is_cpu else None,
        )

    def _memory_of(self, entry: Entry) -> MemoryPeak:
        """A peak only of two steps: during the first, the optimizer has no state yet."""
        memory = self.runs[id(entry)].memory()
        if entry.warm_seconds is None:
            return MemoryPeak(process_base_bytes=memory.process_base_bytes)
        return memory

    def _startup_seconds(self, entry: Entry) -> float | None:
        """First step beyond a steady one, and the way of the weights to the device.

        Whoever runs first on a device pays for its libraries: that price stands in every plan's figure there. On a CPU
        a first step's excess is of its own batch.
        """
        device = self.runs[id(entry)].plan.device
        excesses = [
            other.first_seconds - other.estimate
            for other in self.contest.entries
            if self.runs[id(other)].plan.device == device
            and other.first_seconds is not None
            and other.estimate is not None
            and (other is entry or (device != "cpu" and other is self._first_on(device)))
        ]
        if entry.warm_seconds is None:
            return None  # one step tells nothing apart
        compiling = self.runs[id(entry)].compile_seconds
        if compiling is not None:
            excesses.append(compiling - (entry.estimate or 0.0))
        return significant(self.runs[id(entry)].startup_seconds + max(0.0, *excesses))

    def _first_on(self, device: str) -> Entry | None:
        ran = (entry for entry in self.contest.entries if entry.first_seconds is not None)
        return next((entry for entry in ran if self.runs[id(entry)].plan.device == device), None)


def median_spread(rows: Sequence[Measurement]) -> float | None:
    """Of the rows' relative spreads; None where none has samples."""
    spreads = sorted(relative_spread(row.step) for row in rows if row.step is not None and not row.is_first_step)
    return significant(spreads[len(spreads) // 2]) if spreads else None


def explain_outcome(entry: Entry, seconds: float, *, begun: bool, on_cpu: bool = True) -> tuple[Any, str]:
    """Outcome and reason of an entry that has no figure. begun: its first step was. on_cpu: its plan is."""
    if entry.error is None and not begun:
        return "failed", NOT_BEGUN
    if entry.error is None:
        return "failed", _why_not_done(seconds)
    if isinstance(entry.error, OutOfTime):
        return "failed", str(entry.error)
    failure = explain_step_failure(entry.error, on_cpu=on_cpu)
    return failure.code if failure.code in ("out-of-memory", "unsupported") else "failed", str(failure)


def _why_not_done(seconds: float) -> str:
    return f"One step was not done after {seconds:.0f} s. A smaller batch or more time would do."
