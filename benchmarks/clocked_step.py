"""A step timed as it is and clocked operation by operation, in a process that has imported nothing but what it needs.

A module of its own: what a benchmark's program defines itself makes its forks import that program, and with it the
service, and a heap is then no longer that of a user's run (docs/decisions/0014).
"""

from __future__ import annotations

from typing import NamedTuple

from probes.context import Context
from probes.microtrain.calibration.step_clock import StepClock
from probes.microtrain.calibration.step_timer import StepTimer
from probes.microtrain.calibration.turns import repeat
from probes.microtrain.measuring.workbench import StepRun, Workbench
from probes.microtrain.processes.footprint import keep_freed_memory
from probes.microtrain.quiet.calm import Calm
from probes.workload.description import Plan, Workload

SETTLING_STEPS, LEAST_TURNS = 6, 3


class Clocked(NamedTuple):
    """A plan's step, timed as it is and clocked operation by operation. step: seconds. page_faults: of a step."""

    step: float
    page_faults: float
    context: Context


def clock_step(name: str, workload: Workload, plan: Plan, seconds: float) -> Clocked:
    """Half of the time for whole steps, once their heap has settled; then the other half for what runs in them, from
    memory that is kept (footprint.keep_freed_memory). To be run in a process of its own. Raises RuntimeError where
    steps fail."""
    run = StepRun(Workbench(workload, frozenset((plan.device,))), plan, workload.batch_size)
    with run.setting():
        run(SETTLING_STEPS)
    calm = Calm()
    timer, clock = StepTimer(run, calm), StepClock(name, workload.mode, run, {}, calm)
    repeat(timer.take, seconds / 2, LEAST_TURNS)
    keep_freed_memory()
    repeat(clock.take, seconds / 2)
    timing, context = timer.timing(), clock.context()
    if timing is None or context is None:
        raise RuntimeError(f"no step of {name} could be clocked under {plan.label}")
    return Clocked(timing.median, timer.faults, context)
