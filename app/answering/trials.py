"""What a variant gains one plan: measured in turns with its control, in fresh processes."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from app import labjobs
from app.advisor.environments import KEEP_MEMORY, bare, scaled_parts
from app.advisor.recommendation import Option, Recommendation
from app.answering.compiling import compiling_environment
from app.errors import LabError
from app.keeping import parse_sent
from app.lab import Lab
from app.lab.child import Child
from probes.compilers import why_not_compile
from probes.hardware import Survey
from probes.measurement import Measurement, Timing
from probes.trace import Trace
from probes.workload.description import Plan, Workload

# Turns that each of the two gets: two at least, for one each cannot tell an environment from a busy moment. Each is in
# a process of its own where the time does for two such.
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
# Sample, channel, height, width: what torch.channels_last is for.
IMAGE_DIMENSIONS = 4
# Orders of magnitude on one core, to guess what limits a step where nobody has measured it.
DISPATCH_SECONDS, CORE_FLOPS, CORE_BYTES = 4e-6, 5e10, 1e10


def environment_here() -> Mapping[str, str] | None:
    """What is worth trying on this machine; None with another C library."""
    return KEEP_MEMORY if _has_glibc() else None


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
        (replace(plan, channels_last=True), channels_can_lie_last(trace)),
        (replace(plan, environment=dict(environment or {})), environment is not None),
    )
    return tuple(variant for variant, is_wanted in wanted if is_wanted)


def channels_can_lie_last(trace: Trace) -> bool:
    """Whether a convolution has images that lie otherwise then: of several channels, and of several places. Signals
    stay as they are; for volumes torch has another layout, and refuses this one for the whole model."""
    shapes = [shape for each in trace.operations if each.kind == "convolution" for shape in each.shapes]
    images = (shape for shape in shapes if len(shape) == IMAGE_DIMENSIONS)
    volumes = any(len(shape) > IMAGE_DIMENSIONS for shape in shapes)
    return not volumes and any(channels > 1 and height * width > 1 for _, channels, height, width in images)


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
    _processes: int = 0  # of each of the two

    async def run(self) -> Measurement | None:
        """The plan's measurement with its control; None where time did not do, or a step failed. Raises LabError."""
        end = self.clock() + self.seconds
        try:
            with _environment_of(self.plan) as environment:
                while await self._in_fresh_processes(environment, end):
                    pass
        except OSError as error:
            raise LabError("failed", f"There is no room for what is compiled: {error.strerror}.") from error
        return self._result()

    async def _in_fresh_processes(self, environment: Mapping[str, str], end: float) -> bool:
        """Whether others are to go on: two that run the same plan differ for as long as they live
        (docs/decisions/0014)."""
        begun = self.clock()
        async with self.lab.another(environment) as treated:
            if self.plan.compiled and not await self._compile(treated, end - self.clock()):
                return False
            async with self.lab.another({}) as control:
                self._processes += 1
                return await self._take_turns(control, treated, begun, end)

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

    async def _take_turns(self, control: Child, treated: Child, begun: float, end: float) -> bool:
        """One each where others are to go on after it, else as many as the time does for. begun: when these two
        processes were. Gives whether others are to go on."""
        left, starts = end - self.clock(), control.start_seconds + treated.start_seconds
        apart = self._processes > 1 or self._may_go_on_in_others(left, starts)
        turn = self._least_turn_seconds if apart else self._turn_seconds(left)
        while turn is not None and len(self._rows[True]) < MOST_TURNS:
            turn_begun = self.clock()
            self.on_turn(len(self._rows[True]) / MOST_TURNS, "measuring what else may pay")
            if not await self._take_one_each(control, treated, turn):
                return False
            now = self.clock()
            if apart and now + (now - begun) <= end:
                return len(self._rows[True]) < MOST_TURNS
            if self._processes > 1 or now + (now - turn_begun) > end:
                return False
        return False

    async def _take_one_each(self, control: Child, treated: Child, seconds: float) -> bool:
        """Whether both tell something."""
        for child, changed in ((control, False), (treated, True)):
            row = await self._turn(child, self.plan if changed else bare(self.plan), seconds)
            self._rows[changed].append(row)
            if not _tells(row):
                return False
        return True

    @property
    def _least_turn_seconds(self) -> float:
        return max(LEAST_TURN_SECONDS, STEPS_A_TURN * self.step_seconds)

    def _may_go_on_in_others(self, left: float, starts: float) -> bool:
        """Whether the time does for two more processes. Not of what is compiled: to load that takes each seconds."""
        return not self.plan.compiled and PROCESSES * LEAST_TURNS * self._least_turn_seconds + starts <= left

    def _turn_seconds(self, left: float) -> float | None:
        """Of those in the same two processes; None where the time does for too few."""
        if PROCESSES * LEAST_TURNS * self._least_turn_seconds > left:
            return None
        return max(self._least_turn_seconds, min(MOST_TURN_SECONDS, left / (PROCESSES * MOST_TURNS)))

    async def _turn(self, child: Child, plan: Plan, seconds: float) -> Measurement:
        job = labjobs.measure_job(self.survey, self.workload, [plan], [self.workload.batch_size], seconds)
        result = await child.run(job, self.lab.deadline(seconds))
        return _row_of(result)

    def _result(self) -> Measurement | None:
        control, treated = self._rows[False], self._rows[True]
        if len(treated) < LEAST_TURNS or not all(_tells(row) for row in (*control, *treated)):
            return None
        merge = by_process if self._processes > 1 else pooled
        first, step = treated[0], merge(treated)
        assert first.step is not None
        return replace(
            first,
            step=step,
            steps=sum(row.steps for row in treated),
            steady=all(row.steady for row in treated),
            overheads=scaled_parts(first.overheads, step.median / first.step.median),
            control=merge(control),
            processes=self._processes,
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


def _tells(row: Measurement) -> bool:
    return row.outcome == "ok" and row.step is not None and not row.is_first_step


def by_process(rows: list[Measurement]) -> Timing:
    """Of turns that had a process each: what each of these took."""
    return Timing.from_samples([row.step.median for row in rows if row.step is not None])


def pooled(rows: list[Measurement]) -> Timing:
    """All turns' samples, in the order of time: what differs between turns is spread like any other."""
    return Timing.from_samples([sample for row in rows if row.step is not None for sample in row.step.samples])
