"""What a variant gains one plan: measured in turns with its control, each in a fresh process."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from app import labjobs
from app.advisor.environments import KEEP_MEMORY, bare
from app.advisor.recommendation import Recommendation
from app.keeping import parse_sent
from app.lab import Lab
from app.lab.child import Child
from probes.hardware import Survey
from probes.measurement import Measurement, Timing
from probes.trace import Trace
from probes.workload.description import Plan, Workload

# Turns each process gets: two at least, for one turn each cannot tell an environment from a busy moment.
LEAST_TURNS, MOST_TURNS = 2, 4
# A turn builds the model, warms up and takes samples; shorter ones would be all warm-up.
LEAST_TURN_SECONDS, MOST_TURN_SECONDS = 1.0, 4.0
STEPS_A_TURN = 8
# Of the time for measuring, kept back for this; the plans' own contest comes first.
SHARE = 0.4
# Freed memory is kept, so that two processes with the model may both hold their peak.
PROCESSES = 2


def environment_here() -> Mapping[str, str] | None:
    """What is worth trying on this machine; None with another C library, or where it is set already."""
    if not _has_glibc() or any(name in os.environ for name in KEEP_MEMORY):
        return None
    return KEEP_MEMORY


def _has_glibc() -> bool:
    if not sys.platform.startswith("linux"):
        return False
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (ValueError, OSError):
        return False  # musl knows no such name


def variants_here(trace: Trace) -> tuple[Callable[[Plan], Plan], ...]:
    """What is worth trying on a plan for the CPU, the likelier gain first."""
    environment = environment_here()
    found: list[Callable[[Plan], Plan]] = []
    if any(operation.kind == "convolution" for operation in trace.operations):
        found.append(lambda plan: replace(bare(plan), channels_last=True))
    if environment is not None:
        found.append(lambda plan: replace(bare(plan), environment=dict(environment)))
    return tuple(found)


def seconds_kept_back(seconds: float, start_seconds: float) -> float:
    """Of the time for measuring, for a trial after the contest; 0 where it would not do for one."""
    kept = SHARE * seconds
    return kept if kept >= PROCESSES * (start_seconds + LEAST_TURNS * LEAST_TURN_SECONDS) else 0.0


def trial_of(
    lab: Lab,
    survey: Survey,
    workload: Workload,
    answer: Recommendation,
    seconds: float,
    on_turn: Callable[[float, str], None],
    vary: Callable[[Plan], Plan],
) -> Trial | None:
    """Of the recommended plan, varied; None where it runs on a device, was not measured, or two do not fit."""
    best = answer.recommended
    if best is None or not best.is_cpu:
        return None
    option = next((option for option in answer.options if option.plan.key == bare(best).key), None)
    if option is None or option.step_seconds is None or option.basis != "measured":
        return None
    peak, usable = option.memory.peak_bytes, survey.memory.usable_bytes
    if peak is not None and usable is not None and PROCESSES * peak > usable:
        return None
    return Trial(lab, survey, workload, vary(best), option.step_seconds.median, seconds, on_turn)


@dataclass
class Trial:
    """Use `run` once. seconds: for everything, the processes' start included."""

    lab: Lab
    survey: Survey
    workload: Workload
    plan: Plan  # the variant
    step_seconds: float  # what a step takes, as far as is known
    seconds: float
    on_turn: Callable[[float, str], None]
    clock: Callable[[], float] = time.monotonic
    _rows: dict[bool, list[Measurement]] = field(default_factory=lambda: {False: [], True: []})

    async def run(self) -> Measurement | None:
        """The plan's measurement with its control; None where time did not do, or a step failed. Raises LabError."""
        end = self.clock() + self.seconds
        async with self.lab.another({}) as control, self.lab.another(self.plan.environment) as treated:
            turn = self._turn_seconds(end - self.clock())
            if turn is None:
                return None
            for number in range(MOST_TURNS):
                begun = self.clock()
                self.on_turn(number / MOST_TURNS, "measuring what else may pay")
                for child, changed in ((control, False), (treated, True)):
                    row = await self._turn(child, self.plan if changed else bare(self.plan), turn)
                    if row.outcome != "ok" or row.step is None:
                        return None
                    self._rows[changed].append(row)
                now = self.clock()
                if now + (now - begun) > end:
                    break
        return self._result()

    def _turn_seconds(self, left: float) -> float | None:
        wanted = max(LEAST_TURN_SECONDS, STEPS_A_TURN * self.step_seconds)
        if PROCESSES * LEAST_TURNS * wanted > left:
            return None
        return max(wanted, min(MOST_TURN_SECONDS, left / (PROCESSES * MOST_TURNS)))

    async def _turn(self, child: Child, plan: Plan, seconds: float) -> Measurement:
        job = labjobs.measure_job(self.survey, self.workload, [plan], [self.workload.batch_size], seconds)
        result = await child.run(job, self.lab.deadline(seconds))
        return parse_sent(lambda document: Measurement.from_json(document["measurements"][0]), result)

    def _result(self) -> Measurement | None:
        control, treated = self._rows[False], self._rows[True]
        if len(treated) < LEAST_TURNS:
            return None
        return replace(
            treated[0],
            step=pooled(treated),
            steps=sum(row.steps for row in treated),
            steady=all(row.steady for row in treated),
            control=pooled(control),
        )


def pooled(rows: list[Measurement]) -> Timing:
    """All turns' samples, in the order of time: what differs between turns is spread like any other."""
    return Timing.from_samples([sample for row in rows if row.step is not None for sample in row.step.samples])
