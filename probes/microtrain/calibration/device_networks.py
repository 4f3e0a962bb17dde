"""Measures one micro-network on a device: whole steps, and what issuing its operations takes the host."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from itertools import chain

from probes.context import Context
from probes.microtrain.calibration.network_times import NetworkTimes, StepTime
from probes.microtrain.calibration.networks import MicroNetwork
from probes.microtrain.calibration.operation_clock import ClockedStep, clock_step, merge_costs, record_step
from probes.microtrain.calibration.step_clock import GROWING_STEPS
from probes.microtrain.calibration.step_timer import StepTimer
from probes.microtrain.calibration.turns import repeat
from probes.microtrain.measuring.device_cache import empty_device_cache
from probes.microtrain.measuring.workbench import StepRun, Workbench, synchronize
from probes.microtrain.step import Step
from probes.workload.description import Mode, Plan

# A device that computes a thousand times as fast as one core has next to nothing to do at the batch sizes that are
# right for a core.
LARGER = 16
MOST_TIMED = 4  # rounds
# Of each plan, at the smallest batch that it runs, in any case: one turn after its first steps took half as long again.
FIRST_TURNS = 2
ISSUED_STEPS, ISSUING_SECONDS = 3, 0.01


def device_sizes(network: MicroNetwork, mode: Mode) -> tuple[int, ...]:
    """Batch sizes, the most telling first: the smallest, at which issuing is all there is, many times the largest of a
    CPU's, and that."""
    sizes = network.sizes(mode)
    largest = LARGER * (network.large_batch or sizes[-1])
    return tuple(dict.fromkeys((sizes[0], largest, sizes[-1])))


def warmed_up(bench: Workbench, sizes: Sequence[int], plans: Sequence[Plan], deadline: float) -> list[StepRun]:
    """Those that run, until the deadline (time.perf_counter), but the first size under every plan in any case. The
    first steps load kernels, and find out which are quick; what does not run, for want of memory above all, is left
    out."""
    found: list[StepRun] = []
    for place, size in enumerate(sizes):
        for plan in plans:
            if place > 0 and time.perf_counter() > deadline:
                return found
            run = StepRun(bench, plan, size)
            with contextlib.suppress(Exception):
                with run.setting():
                    run(GROWING_STEPS)
                found.append(run)
    return found


def measure_on_device(network: MicroNetwork, mode: Mode, plans: Sequence[Plan], deadline: float) -> NetworkTimes:
    """Under plans of one device, until the deadline (time.perf_counter), but the smallest batch under every plan in any
    case. contexts: by the host's clock; the device's is another process's
    (probes.microtrain.calibration.kernel_clock), which has the same need of the device's memory: what they computed
    with is given back."""
    times = _measure(network, mode, plans, deadline)
    empty_device_cache()
    return times


def _measure(network: MicroNetwork, mode: Mode, plans: Sequence[Plan], deadline: float) -> NetworkTimes:
    sizes = device_sizes(network, mode)
    bench = Workbench(network.workload(mode), frozenset(plan.device for plan in plans))
    runs = warmed_up(bench, sizes[:2], plans, deadline)  # of the third only operations say something new
    timers = [StepTimer(run) for run in runs if network.timed]
    if timers:
        timers[0].settle()
    for timer in timers[: len(plans)] * FIRST_TURNS:
        timer.take()
    contexts = [
        context for run in runs if _tells_of_issuing(run, sizes[0]) for context in _issuing(network.name, mode, run)
    ]
    for timer in (*timers[len(plans) :], *chain(*[timers] * (MOST_TIMED - 1))):
        if time.perf_counter() > deadline:
            break
        timer.take()
    steps = [
        StepTime(timer.run.batch_size, timer.run.plan, timing, 0.0)
        for timer in timers
        if (timing := timer.timing()) is not None
    ]
    return NetworkTimes(steps, contexts, None)


def _tells_of_issuing(run: StepRun, smallest: int) -> bool:
    """At the smallest batch the host never waits; in tf32 it does what it does in fp32."""
    return run.batch_size == smallest and run.plan.precision != "tf32"


def _issuing(name: str, mode: Mode, run: StepRun) -> Iterator[Context]:
    """Nothing where it cannot be clocked."""
    clocked: list[ClockedStep] = []
    try:
        with run.setting():
            step = run.prepared()
            records, issued = record_step(step)
            repeat(lambda: clocked.append(_clock_idle(step)), ISSUING_SECONDS, ISSUED_STEPS)
    except Exception:  # noqa: BLE001 - the steps' times stand without it
        return
    costs = merge_costs(records, clocked)
    if costs:
        yield Context(name, run.batch_size, mode, run.plan, costs, issued)


def _clock_idle(step: Step) -> ClockedStep:
    """Onto an idle queue: a full one makes the host wait."""
    synchronize(step.device)
    return clock_step(step)
