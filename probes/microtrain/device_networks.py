"""Measures one micro-network on a device: whole steps, what issuing its operations takes the host, and what each takes
there."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from itertools import chain

from probes.context import Clock, Context
from probes.issued import Issued
from probes.microtrain.device_clock import clock_device_steps
from probes.microtrain.network_times import GROWING_STEPS, NetworkTimes, StepTime, StepTimer, repeat
from probes.microtrain.networks import MicroNetwork
from probes.microtrain.operation_clock import clock_step, merge_costs, record_operations, record_step
from probes.microtrain.recording import Record
from probes.microtrain.step import Step
from probes.microtrain.workbench import StepRun, Workbench, synchronize
from probes.workload.description import Mode, Plan

# A device that computes a thousand times as fast as one core has next to nothing to do at the batch sizes that are
# right for a core.
LARGER = 16
MOST_TIMED = 4  # rounds
CLOCKED_STEPS, ISSUED_STEPS, ISSUING_SECONDS = 2, 3, 0.01  # by the device's clock, by the host's


def device_sizes(network: MicroNetwork, mode: Mode) -> tuple[int, ...]:
    """Batch sizes, the most telling first: the smallest, at which issuing is all there is, many times the largest of a
    CPU's, and that."""
    sizes = network.sizes(mode)
    largest = LARGER * (network.large_batch or sizes[-1])
    return tuple(dict.fromkeys((sizes[0], largest, sizes[-1])))


def measure_on_device(network: MicroNetwork, mode: Mode, plans: Sequence[Plan], deadline: float) -> NetworkTimes:
    """Under plans of one device, until the deadline (time.perf_counter), but the smallest batch under every plan in any
    case. What does not run, for want of memory above all, is no point."""
    return _DeviceRun(network, mode, plans, deadline).measure()


class _DeviceRun:
    def __init__(self, network: MicroNetwork, mode: Mode, plans: Sequence[Plan], deadline: float) -> None:
        self._network, self._mode, self._plans = network, mode, plans
        self._begun, self._deadline = time.perf_counter(), deadline
        self._bench = Workbench(network.workload(mode), frozenset(plan.device for plan in plans))
        self._records: dict[tuple[int, str], list[Record]] = {}

    def measure(self) -> NetworkTimes:
        runs = self._warmed_up()
        timers = [StepTimer(run) for run in runs if self._network.timed and run.batch_size != self._middle]
        for timer in timers[: len(self._plans)]:
            timer.take()
        contexts = [context for run in runs if _tells_of_issuing(run, runs) for context in self._issuing(run)]
        contexts += self._computing(runs)
        self._time_the_rest(timers)
        steps = [
            StepTime(timer.run.batch_size, timer.run.plan, timing, 0.0)
            for timer in timers
            if (timing := timer.timing()) is not None
        ]
        return NetworkTimes(steps, contexts, None)

    @property
    def _middle(self) -> int | None:
        """The batch size of which only operations are clocked."""
        sizes = device_sizes(self._network, self._mode)
        return sizes[2] if len(sizes) > 2 else None

    def _warmed_up(self) -> list[StepRun]:
        """Those that run: the first steps load kernels, and find out which are quick."""
        found: list[StepRun] = []
        for size in device_sizes(self._network, self._mode):
            for plan in self._plans:
                if found and len(found) >= len(self._plans) and time.perf_counter() > self._deadline:
                    return found
                run = StepRun(self._bench, plan, size)
                with contextlib.suppress(Exception):
                    with run.setting():
                        run(GROWING_STEPS)
                    found.append(run)
        return found

    def _time_the_rest(self, timers: Sequence[StepTimer]) -> None:
        for timer in (*timers[len(self._plans) :], *chain(*[timers] * (MOST_TIMED - 1))):
            if time.perf_counter() > self._deadline:
                return
            timer.take()

    def _issuing(self, run: StepRun) -> Iterator[Context]:
        """By the host's clock."""
        clocked: list[list[float]] = []
        try:
            with run.setting():
                step = run.prepared()
                records, issued = record_step(step)
                repeat(lambda: clocked.append(_clock_idle(step)), ISSUING_SECONDS, ISSUED_STEPS)
        except Exception:  # noqa: BLE001 - what cannot be clocked is no context
            return
        self._records[_shapes_key(run)] = records
        yield from self._context(run, records, clocked, "host", issued)

    def _computing(self, runs: Sequence[StepRun]) -> Iterator[Context]:
        """By the device's clock; nothing where there is no profiler, or another one has it."""
        try:
            found = clock_device_steps(runs, CLOCKED_STEPS)
            recorded = [self._recorded(run) for run in runs]
        except Exception:  # noqa: BLE001 - the steps' times stand without it
            return
        for run, records, times in zip(runs, recorded, found, strict=True):
            yield from self._context(run, records, [[cost.seconds for cost in costs] for costs in times], "device")

    def _recorded(self, run: StepRun) -> list[Record]:
        key = _shapes_key(run)
        if key not in self._records:
            with run.setting():
                self._records[key] = record_operations(run.prepared())
        return self._records[key]

    def _context(
        self,
        run: StepRun,
        records: Sequence[Record],
        clocked: Sequence[Sequence[float]],
        clock: Clock,
        issued: Issued | None = None,
    ) -> Iterator[Context]:
        steps = [step for step in clocked if len(step) == len(records)]  # others ran something else
        ran = [place for place in range(len(records)) if all(step[place] > 0 for step in steps)]
        costs = merge_costs([records[place] for place in ran], [[step[place] for place in ran] for step in steps])
        if costs:
            yield Context(self._network.name, run.batch_size, self._mode, run.plan, costs, issued, clock)


def _tells_of_issuing(run: StepRun, runs: Sequence[StepRun]) -> bool:
    """At the smallest batch the host never waits; in tf32 it does what it does in fp32."""
    return run.batch_size == runs[0].batch_size and run.plan.precision != "tf32"


def _shapes_key(run: StepRun) -> tuple[int, str]:
    """Of runs whose operations are the same: tf32 is another way to compute them."""
    return run.batch_size, "fp32" if run.plan.precision == "tf32" else run.plan.precision


def _clock_idle(step: Step) -> list[float]:
    """Onto an idle queue: a full one makes the host wait."""
    synchronize(step.device)
    return clock_step(step)
