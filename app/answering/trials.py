"""What a variant gains one plan: measured in turns with its control, in fresh processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from app import labjobs
from app.advisor.environments import bare, scaled_parts
from app.advisor.recommendation import Recommendation
from app.answering.compiling import compiling_environment
from app.answering.trial_time import LEAST_TURN_SECONDS, LEAST_TURNS, PROCESSES, least_turn_seconds, preparing_seconds
from app.answering.variants import plain_option
from app.errors import LabError
from app.keeping import parse_sent
from app.lab import Lab
from app.lab.child import Child
from probes.hardware import Survey
from probes.measurement import Measurement, Timing
from probes.workload.description import Plan, Workload

MOST_TURNS = 4
MOST_TURN_SECONDS = 4.0


def trial_of(
    lab: Lab,
    survey: Survey,
    workload: Workload,
    answer: Recommendation,
    seconds: float,
    on_turn: Callable[[float, str], None],
    variant: Plan,
    paces: Mapping[int, float],
) -> Trial | None:
    """Of the recommended plan, varied; paces: as Trial has them. None where it was not measured, or two do not fit."""
    option = plain_option(answer)
    if option is None or option.step_seconds is None or option.basis != "measured":
        return None
    peak, usable = option.memory.peak_bytes, survey.memory.usable_bytes
    if peak is not None and usable is not None and PROCESSES * peak > usable:
        return None
    return Trial(lab, survey, workload, variant, option.step_seconds.median, seconds, on_turn, paces)


@dataclass
class Trial:
    """Use `run` once. seconds: for everything, the processes' start included. paces: of quick cores, by the profile: a
    turn that lies wholly in slow seconds has nothing else to tell it."""

    lab: Lab
    survey: Survey
    workload: Workload
    plan: Plan  # the variant
    step_seconds: float  # what a step takes, as far as is known
    seconds: float
    on_turn: Callable[[float, str], None]
    paces: Mapping[int, float] = field(default_factory=dict)
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
        job = self._job(self.plan, LEAST_TURN_SECONDS)
        turns = child.start_seconds + self._preparing_seconds + PROCESSES * LEAST_TURNS * LEAST_TURN_SECONDS
        if left <= turns:
            return False
        result = await child.run(job, left - turns)
        return _row_of(result).outcome == "ok"

    async def _take_turns(self, control: Child, treated: Child, begun: float, end: float) -> bool:
        """One each where others are to go on after it, else as many as the time does for. begun: when these two
        processes were. Gives whether others are to go on."""
        preparing = {control: self._preparing_seconds, treated: 0.0 if self.plan.compiled else self._preparing_seconds}
        left = end - self.clock() - sum(preparing.values())
        starts = control.start_seconds + treated.start_seconds + sum(preparing.values())
        apart = self._processes > 1 or self._may_go_on_in_others(left, starts)
        turn = self._least_turn_seconds if apart else self._turn_seconds(left)
        while turn is not None and len(self._rows[True]) < MOST_TURNS:
            turn_begun = self.clock() + sum(preparing.values())
            self.on_turn(len(self._rows[True]) / MOST_TURNS, "measuring what else may pay")
            if not await self._take_one_each({child: turn + before for child, before in preparing.items()}, treated):
                return False
            now = self.clock()
            if apart and now + (now - begun) <= end:
                return len(self._rows[True]) < MOST_TURNS
            if self._processes > 1 or now + (now - turn_begun) > end:
                return False
            preparing = dict.fromkeys(preparing, 0.0)
        return False

    async def _take_one_each(self, seconds: Mapping[Child, float], treated: Child) -> bool:
        """Whether both tell something. seconds: of each, the control first."""
        for child, mine in seconds.items():
            changed = child is treated
            row = await self._turn(child, self.plan if changed else bare(self.plan), mine)
            self._rows[changed].append(row)
            if not _tells(row):
                return False
        return True

    @property
    def _preparing_seconds(self) -> float:
        return preparing_seconds(self.workload)

    @property
    def _least_turn_seconds(self) -> float:
        return least_turn_seconds(self.step_seconds)

    def _may_go_on_in_others(self, left: float, starts: float) -> bool:
        """Whether the time does for two more processes. Not of what is compiled: to load that takes each seconds."""
        return not self.plan.compiled and PROCESSES * LEAST_TURNS * self._least_turn_seconds + starts <= left

    def _turn_seconds(self, left: float) -> float | None:
        """Of those in the same two processes; None where the time does for too few."""
        if PROCESSES * LEAST_TURNS * self._least_turn_seconds > left:
            return None
        return max(self._least_turn_seconds, min(MOST_TURN_SECONDS, left / (PROCESSES * MOST_TURNS)))

    async def _turn(self, child: Child, plan: Plan, seconds: float) -> Measurement:
        result = await child.run(self._job(plan, seconds), self.lab.deadline(seconds))
        return _row_of(result)

    def _job(self, plan: Plan, seconds: float) -> dict[str, Any]:
        sizes = [self.workload.batch_size]
        return labjobs.measure_job(self.survey, self.workload, [plan], sizes, seconds, paces=self.paces)

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
