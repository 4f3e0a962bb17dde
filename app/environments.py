"""What a variant gains one plan: measured in turns with its control, each in a fresh process."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from app import labjobs
from app.advisor.environments import KEEP_MEMORY, bare
from app.advisor.recommendation import Option, Recommendation
from app.compiling import compiling_environment
from app.errors import LabError
from app.keeping import parse_sent
from app.lab import Lab
from app.lab.child import Child
from probes.compilers import why_not_compile
from probes.hardware import Survey
from probes.measurement import Measurement, Timing
from probes.trace import Trace
from probes.workload.description import Plan, Workload

# Turns each process gets: two at least, for one turn each cannot tell an environment from a busy moment.
LEAST_TURNS, MOST_TURNS = 2, 4
# A turn builds the model, warms up and takes samples; shorter ones would be all warm-up.
LEAST_TURN_SECONDS, MOST_TURN_SECONDS = 1.0, 4.0
STEPS_A_TURN = 8
# Of the time for measuring, kept back for this; the plans' own contest comes first. More where the model is likely to
# be compiled: such steps are short, and the contest needs little.
SHARE, SHARE_COMPILING = 0.4, 0.65
# Freed memory is kept, so that two processes with the model may both hold their peak.
PROCESSES = 2
# Compiling seven small layers took 15 s for inference and 21 s for training on two cores of 2025, nothing cached.
LEAST_COMPILE_SECONDS = 20.0
# Of a step, from which on compiling is tried: below, it saves little, and the trial takes half of all the time.
LAUNCH_SHARE = 0.2
# Of the numbers in a step, from which on flushing denormals is tried. Arithmetic on one takes some hundred cycles where
# it takes long (Intel's optimization manual, "Floating-point exceptions"), and a cycle or so on any other.
DENORMAL_SHARE = 1e-4
# Orders of magnitude on one core, to guess what limits a step where nobody has measured it.
DISPATCH_SECONDS, CORE_FLOPS, CORE_BYTES = 4e-6, 5e10, 1e10


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


def variants_of(answer: Recommendation, trace: Trace, measurements: Sequence[Measurement]) -> tuple[Plan, ...]:
    """What is worth trying on the recommended plan, if it is one for the CPU; the likelier gain first."""
    best = answer.recommended
    if best is None or not best.is_cpu:
        return ()
    plan, workload, environment = bare(best), answer.workload, environment_here()
    wanted = (
        (replace(plan, flush_denormal=True), makes_denormals(measurements, plan, workload)),
        (replace(plan, compiled=True), compiling_may_pay(answer, trace)),
        (replace(plan, channels_last=True), any(each.kind == "convolution" for each in trace.operations)),
        (replace(plan, environment=dict(environment or {})), environment is not None),
    )
    return tuple(variant for variant, is_wanted in wanted if is_wanted)


def makes_denormals(measurements: Sequence[Measurement], plan: Plan, workload: Workload) -> bool:
    """Whether its steps did. Where none was looked at: the user's own code may, random data alone does not."""
    rows = [row for row in measurements if (row.plan.key, row.batch_size) == (plan.key, workload.batch_size)]
    shares = [row.denormal_share for row in rows if row.denormal_share is not None]
    return max(shares) >= DENORMAL_SHARE if shares else workload.model.kind == "python"


def compiling_may_pay(answer: Recommendation, trace: Trace) -> bool:
    """Where torch.compile can run, and the host's issuing of operations is a real share of the best plan's step."""
    option = plain_option(answer)
    share = launch_share(option) if option is not None else None
    known = share if share is not None else guess_launch_share(trace, answer.workload.batch_size)
    return known >= LAUNCH_SHARE and why_not_compile() is None


def launch_share(option: Option) -> float | None:
    launch, seconds = option.breakdown_seconds.launch, option.step_seconds
    return None if launch is None or seconds is None else launch / seconds.median


def guess_launch_share(trace: Trace, batch_size: int) -> float:
    """From the trace alone, in orders of magnitude."""
    computing = sum(
        each.count
        * max(
            each.flops.at(batch_size) / CORE_FLOPS,
            (each.read_bytes.at(batch_size) + each.written_bytes.at(batch_size)) / CORE_BYTES,
        )
        for each in trace.operations
    )
    issuing = DISPATCH_SECONDS * sum(each.count for each in trace.operations)
    return issuing / (issuing + computing) if issuing else 0.0


def plain_option(answer: Recommendation) -> Option | None:
    """The recommended plan's, as torch has it."""
    best = answer.recommended
    return next((each for each in answer.options if best is not None and each.plan.key == bare(best).key), None)


def least_seconds(start_seconds: float, *, compiled: bool) -> float:
    """Below which a trial tells nothing."""
    turns = PROCESSES * (start_seconds + LEAST_TURNS * LEAST_TURN_SECONDS)
    return turns + LEAST_COMPILE_SECONDS if compiled else turns


def seconds_kept_back(seconds: float, start_seconds: float, *, compiling: bool = False) -> float:
    """Of the time for measuring, for trials after the contest; 0 where it would not do for one."""
    if compiling and SHARE_COMPILING * seconds >= least_seconds(start_seconds, compiled=True):
        return SHARE_COMPILING * seconds
    kept = SHARE * seconds
    return kept if kept >= least_seconds(start_seconds, compiled=False) else 0.0


def affordable(variants: Sequence[Plan], seconds: float, start_seconds: float) -> list[tuple[Plan, float]]:
    """Each variant with its part of the time, in their order: those for which the time does, the rest shared evenly."""
    chosen: list[tuple[Plan, float]] = []
    for plan in variants:
        least = least_seconds(start_seconds, compiled=plan.compiled)
        if least <= seconds:
            chosen.append((plan, least))
            seconds -= least
    return [(plan, least + seconds / len(chosen)) for plan, least in chosen]


def trial_of(
    lab: Lab,
    survey: Survey,
    workload: Workload,
    answer: Recommendation,
    seconds: float,
    on_turn: Callable[[float, str], None],
    variant: Plan,
) -> Trial | None:
    """Of the recommended plan, varied; None where it was not measured, or two do not fit."""
    option = plain_option(answer)
    if option is None or option.step_seconds is None or option.basis != "measured":
        return None
    peak, usable = option.memory.peak_bytes, survey.memory.usable_bytes
    if peak is not None and usable is not None and PROCESSES * peak > usable:
        return None
    return Trial(lab, survey, workload, variant, option.step_seconds.median, seconds, on_turn)


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
        try:
            with _environment_of(self.plan) as environment:
                async with self.lab.another(environment) as treated:
                    if self.plan.compiled and not await self._compile(treated, end - self.clock()):
                        return None
                    async with self.lab.another({}) as control:
                        return await self._take_turns(control, treated, end)
        except OSError as error:
            raise LabError("failed", f"There is no room for what is compiled: {error.strerror}.") from error

    async def _compile(self, child: Child, left: float) -> bool:
        """Whether it compiled, and in time for what comes after. Raises LabError when it took longer."""
        self.on_turn(0.0, "compiling the model")
        job = labjobs.measure_job(
            self.survey, self.workload, [self.plan], [self.workload.batch_size], LEAST_TURN_SECONDS
        )
        turns = child.start_seconds + PROCESSES * LEAST_TURNS * LEAST_TURN_SECONDS
        if left <= turns:
            return False
        result = await child.run(job, left - turns)
        return _row_of(result).outcome == "ok"

    async def _take_turns(self, control: Child, treated: Child, end: float) -> Measurement | None:
        turn = self._turn_seconds(end - self.clock())
        if turn is None:
            return None
        for number in range(MOST_TURNS):
            begun = self.clock()
            self.on_turn(number / MOST_TURNS, "measuring what else may pay")
            for child, changed in ((control, False), (treated, True)):
                row = await self._turn(child, self.plan if changed else bare(self.plan), turn)
                if row.outcome != "ok" or row.step is None or row.is_first_step:
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
        return _row_of(result)

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


@contextmanager
def _environment_of(plan: Plan) -> Iterator[dict[str, str]]:
    """The plan's own, with a place to compile where it does. Raises OSError."""
    if not plan.compiled:
        yield plan.environment
        return
    with compiling_environment() as places:
        yield {**plan.environment, **places}


def _row_of(result: dict[str, Any]) -> Measurement:
    return parse_sent(lambda document: Measurement.from_json(document["measurements"][0]), result)


def pooled(rows: list[Measurement]) -> Timing:
    """All turns' samples, in the order of time: what differs between turns is spread like any other."""
    return Timing.from_samples([sample for row in rows if row.step is not None for sample in row.step.samples])
