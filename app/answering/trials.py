"""What a variant gains one plan: measured in turns with its control, in fresh processes."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from app import labjobs
from app.advisor.denormals import DENORMAL_SHARE
from app.advisor.environments import bare, scaled_parts
from app.advisor.memory_model.rooms import available_bytes
from app.advisor.plans import whole_usable_cores
from app.advisor.recommendation import Option, Recommendation
from app.answering.apart import LIBRARIES_BYTES
from app.answering.compiling import compiling_environment
from app.answering.own_work import run_without_own
from app.answering.trial_time import LEAST_TURN_SECONDS, LEAST_TURNS, PROCESSES, least_turn_seconds, preparing_seconds
from app.answering.variants import plain_option
from app.errors import LabError
from app.keeping import parse_sent
from app.lab import Lab
from app.lab.child import Child
from probes.hardware import Survey
from probes.measurement import Measurement, Timing
from probes.workload.description import Plan, Workload

log = logging.getLogger(__name__)

MOST_TURNS = 4
# Without what comes before its first step.
MOST_TURN_SECONDS = 4.0


def fit_together(survey: Survey, option: Option) -> bool:
    """Whether the memory of its device does for both processes of this plan, as far as is known, and the host's for
    what they load."""
    peak, usable = option.memory.peak_bytes, available_bytes(survey, option.plan)
    on_host = survey.memory.usable_bytes
    if not option.plan.is_cpu and on_host is not None and on_host < PROCESSES * LIBRARIES_BYTES:
        return False
    return peak is None or usable is None or PROCESSES * peak <= usable


def trial_of(
    lab: Lab,
    survey: Survey,
    workload: Workload,
    answer: Recommendation,
    seconds: float,
    on_turn: Callable[[float, str], None],
    variant: Plan,
    paces: Mapping[int, float],
    begin_seconds: float,
    device_seconds: float = 0.0,
) -> Trial | None:
    """Of the recommended plan, varied; paces, begin_seconds, device_seconds: as Trial has them. None where it was not
    measured, or two do not fit."""
    option = plain_option(answer)
    if option is None or option.step_seconds is None or option.basis != "measured":
        return None
    if not fit_together(survey, option):
        return None
    took, begun = option.step_seconds.median, (begin_seconds, device_seconds)
    return Trial(lab, survey, workload, variant, took, seconds, on_turn, paces, *begun)


@dataclass
class Trial:
    """Use `run` once. seconds: for everything, the processes' start included. paces: of quick cores, by the profile: a
    turn that lies wholly in slow seconds has nothing else to tell it. begin_seconds: before a job's first step, as the
    model is built anew for each; without what a process imports. device_seconds: what beginning on the plan's device
    takes each process."""

    lab: Lab
    survey: Survey
    workload: Workload
    plan: Plan  # the variant
    step_seconds: float  # what a step takes, as far as is known
    seconds: float
    on_turn: Callable[[float, str], None]
    paces: Mapping[int, float] = field(default_factory=dict)
    begin_seconds: float = 0.0
    device_seconds: float = 0.0
    clock: Callable[[], float] = time.monotonic
    _rows: dict[bool, list[Measurement]] = field(default_factory=lambda: {False: [], True: []})
    _processes: int = 0  # of each of the two

    async def run(self) -> Measurement | None:
        """The plan's measurement with its control, by the turns before any that failed; None where time did not do for
        enough of them. Raises LabError."""
        end = self.clock() + self.seconds
        try:
            with _environment_of(self.plan, whole_usable_cores(self.survey.cpu)) as environment:
                while await self._in_fresh_processes(environment, end):
                    pass
        except OSError as error:
            raise LabError("failed", f"There is no room for what is compiled: {error.strerror}.") from error
        except LabError as error:
            if len(self._pairs) < LEAST_TURNS:
                raise
            log.info("A trial of %s ended early: %s", self.plan.label, error)
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
        turns = child.start_seconds + self._preparing_seconds + PROCESSES * LEAST_TURNS * self._least_turn_seconds
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
        """Whether to go on after it: both tell something. seconds: of each, the control first."""
        for child, mine in seconds.items():
            changed = child is treated
            row = await self._turn(child, self.plan if changed else bare(self.plan), mine)
            self._rows[changed].append(row)
            if not _tells(row) or self._flushes_nothing:
                return False
        return True

    @property
    def _preparing_seconds(self) -> float:
        return preparing_seconds(self.workload) + self.device_seconds

    @property
    def _least_turn_seconds(self) -> float:
        return least_turn_seconds(self.step_seconds, self.begin_seconds)

    def _may_go_on_in_others(self, left: float, starts: float) -> bool:
        """Whether the time does for two more processes. Not of what is compiled: to load that takes each seconds."""
        return not self.plan.compiled and PROCESSES * LEAST_TURNS * self._least_turn_seconds + starts <= left

    def _turn_seconds(self, left: float) -> float | None:
        """Of those in the same two processes; None where the time does for too few."""
        if PROCESSES * LEAST_TURNS * self._least_turn_seconds > left:
            return None
        most = self.begin_seconds + MOST_TURN_SECONDS
        return max(self._least_turn_seconds, min(most, left / (PROCESSES * MOST_TURNS)))

    async def _turn(self, child: Child, plan: Plan, seconds: float) -> Measurement:
        return _row_of(await run_without_own(child, self._job(plan, seconds), self.lab.deadline(seconds)))

    def _job(self, plan: Plan, seconds: float) -> dict[str, Any]:
        sizes = [self.workload.batch_size]
        return labjobs.measure_job(self.survey, self.workload, [plan], sizes, seconds, paces=self.paces)

    @property
    def _pairs(self) -> list[tuple[Measurement, Measurement]]:
        """Of each turn the control's row and the variant's, up to the first where one tells nothing."""
        both = zip(self._rows[False], self._rows[True], strict=False)
        return list(itertools.takewhile(lambda pair: all(map(_tells, pair)), both))

    @property
    def _denormal_share(self) -> float | None:
        """Of steps as torch has them; None where nobody looked."""
        shares = (row.denormal_share for row in self._rows[False])
        return max((share for share in shares if share is not None), default=None)

    @property
    def _flushes_nothing(self) -> bool:
        """What seems to be gained where hardly any denormals are is chance."""
        share = self._denormal_share
        return self.plan.flush_denormal and share is not None and share < DENORMAL_SHARE

    def _result(self) -> Measurement | None:
        pairs = self._pairs
        if len(pairs) < LEAST_TURNS or self._flushes_nothing:
            return None
        control, treated = ([pair[side] for pair in pairs] for side in (0, 1))
        apart = self._processes > 1
        merge = by_process if apart else pooled
        first, step = treated[0], merge(treated)
        assert first.step is not None
        return replace(
            first,
            step=step,
            steps=sum(row.steps for row in treated),
            steady=all(row.steady for row in treated),
            overheads=scaled_parts(first.overheads, step.median / first.step.median),
            denormal_share=self._denormal_share,
            control=merge(control),
            processes=len(pairs) if apart else 1,
        )


@contextmanager
def _environment_of(plan: Plan, usable_cores: int) -> Iterator[dict[str, str]]:
    """The plan's own, with a place to compile where it does. Raises OSError."""
    if not plan.compiled:
        yield plan.environment
        return
    with compiling_environment(usable_cores, on_cpu=plan.is_cpu) as places:
        yield {**plan.environment, **places}


def _row_of(result: dict[str, Any]) -> Measurement:
    return parse_sent(lambda document: Measurement.from_json(document["measurements"][0]), result)


def _tells(row: Measurement) -> bool:
    """Whether it has a sample: one of two steps may be the second that its process ever took, while that warmed up."""
    if row.outcome != "ok" or row.step is None or row.is_first_step:
        return False
    return row.steps != 2 or len(row.step.samples) > 1


def by_process(rows: list[Measurement]) -> Timing:
    """Of turns that had a process each: what each of these took."""
    return Timing.from_samples([row.step.median for row in rows if row.step is not None])


def pooled(rows: list[Measurement]) -> Timing:
    """All turns' samples, in the order of time: what differs between turns is spread like any other."""
    return Timing.from_samples([sample for row in rows if row.step is not None for sample in row.step.samples])
