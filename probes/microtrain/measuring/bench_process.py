"""A process that lays a workload out and runs its steps, forked from one that has imported all it needs.

Plans on a CPU only: what computes on a device does not survive a fork.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from probes.measurement import MemoryPeak
from probes.microtrain.building.least_memory import estimate_least_memory
from probes.microtrain.failures import Failure, explain_step_failure
from probes.microtrain.measuring.overhead_meter import OverheadMeter
from probes.microtrain.measuring.workbench import StepRun, Workbench
from probes.microtrain.processes.footprint import limited_to, read_file_bytes
from probes.microtrain.processes.fresh_processes import EndedEarly, Fresh
from probes.microtrain.processes.heap_litter import litter_heap
from probes.microtrain.quiet.pace import read_pace
from probes.oom_kills import is_killed_for_memory, read_oom_kills
from probes.reading import Root
from probes.workload.description import Plan, Workload

ENDED = "Its process ended before the step did"


def say_ended(kills_before: int | None, kills_after: int | None) -> str:
    """Both as is_killed_for_memory takes them."""
    for_memory = is_killed_for_memory(kills_before, kills_after)
    if for_memory is None:
        return f"{ENDED}, perhaps for want of memory."
    if for_memory:
        return f"{ENDED}, most likely for want of memory."
    return (
        f"{ENDED}, and not as the kernel killed it for want of memory: it crashed, or somebody or a program ended it."
    )


@dataclass(frozen=True, slots=True)
class Steps:
    """A question: run so many. watched: peaks of memory are taken."""

    executions: int
    watched: bool


@dataclass(frozen=True, slots=True)
class Parts:
    """A question: the overheads of a step that takes step_seconds, within so many seconds."""

    step_seconds: float
    seconds: float


@dataclass(frozen=True, slots=True)
class DenormalShare:
    """A question: of the results of one real step (probes.microtrain.measuring.denormals)."""


@dataclass(frozen=True, slots=True)
class Drop:
    """A request: let go of what only this plan needs."""


@dataclass(frozen=True, slots=True)
class Least:
    """A question: the memory that a step needs at least."""


@dataclass(frozen=True, slots=True)
class Ran:
    """An answer: seconds by the process's own clock, the peaks as known by now, and the cores' pace right after."""

    seconds: float
    memory: MemoryPeak
    pace: float | None


@dataclass(frozen=True, slots=True)
class _Failed:
    """An answer: what the step died of; an exception of a user's own cannot always be sent."""

    code: str
    text: str


Question = Steps | Parts | DenormalShare | Drop | Least


class BenchProcess:
    """Begins when it is first asked, and again where it has ended.

    seconds_to_start: until it could run a step, of the last that could; 0 until then."""

    def __init__(self, workload: Workload, memory_limit_bytes: int | None) -> None:
        self.seconds_to_start = 0.0
        self._arguments = (workload.to_json(), memory_limit_bytes)
        self._process: Fresh | None = None
        self._oom_kills: int | None = None  # as that began
        self._could_run = False

    @property
    def runs(self) -> bool:
        return self._process is not None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def start(self, plan: Plan, batch_size: int) -> None:
        """Until it could run a step: what it was asked before may have needed no model. Raises Failure."""
        if not self._could_run:
            begun = time.perf_counter()
            self.ask(plan, batch_size, Steps(0, watched=False))
            self.seconds_to_start, self._could_run = time.perf_counter() - begun, True

    def ask(self, plan: Plan, batch_size: int, question: Question) -> Any:
        """Raises Failure."""
        try:
            if self._process is None:
                self._oom_kills = read_oom_kills(Root())
                self._process = Fresh(_serve_steps, self._arguments)
            answer = self._process.ask((plan.to_json(), batch_size, question))
        except EndedEarly as error:
            self.end()
            raise self.ended() from error
        if isinstance(answer, _Failed):
            raise Failure(answer.code, answer.text)
        return answer

    def ended(self) -> Failure:
        """What says so where it ended before it had an answer."""
        return Failure("failed", say_ended(self._oom_kills, read_oom_kills(Root())))

    def end(self) -> None:
        """The next question would start another."""
        self._could_run = False
        if self._process is not None:
            self._process.end()
            self._process = None


def _serve_steps(
    serve: Callable[[Callable[[Any], object]], object], workload: dict[str, Any], memory_limit_bytes: int | None
) -> None:
    """In the process, until nobody asks any more."""
    litter_heap()
    libraries = read_file_bytes(Path(f"/proc/{os.getppid()}")) or 0
    with limited_to(memory_limit_bytes), contextlib.ExitStack() as settings:
        serve(_Bench(Workload.from_json(workload), libraries, settings).answer)


class _Bench:
    """settings: what is global in torch stays as the last plan wanted it."""

    def __init__(self, workload: Workload, libraries: int, settings: contextlib.ExitStack) -> None:
        self._libraries = libraries
        self._before = unmapped_bytes(libraries)
        self._bench = Workbench(workload, frozenset(["cpu"]))
        self._settings = settings
        self._set: object = None  # for which plan
        self._runs: dict[object, StepRun] = {}

    def answer(self, asked: tuple[dict[str, Any], int, Question]) -> object:
        document, batch_size, question = asked
        try:
            run = self._run_of(Plan.from_json(document), batch_size)
            answered = self._answer(run, question)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a plan dies of is its own answer
            failure = explain_step_failure(error)
            return _Failed(failure.code, str(failure))
        if isinstance(answered, Ran):
            memory = with_libraries(answered.memory, self._before, unmapped_bytes(self._libraries))
            return replace(answered, memory=memory)
        return answered

    def _run_of(self, plan: Plan, batch_size: int) -> StepRun:
        key = (plan.key, batch_size)
        if key not in self._runs:
            self._runs[key] = StepRun(self._bench, plan, batch_size)
        run = self._runs[key]
        if self._set != plan.key:
            self._settings.close()
            self._settings.enter_context(run.setting())
            self._set = plan.key
        return run

    def _answer(self, run: StepRun, question: Question) -> object:
        match question:
            case Steps(executions, watched):
                seconds = 0.0
                if executions and not watched and not run.has_run:  # in the place of a process that died
                    with run.noticing():
                        seconds, executions = run(1), executions - 1
                with run.watched() if watched else contextlib.nullcontext():
                    seconds += run(executions)
                # Peaks of memory are not to hold what reading the pace needs.
                return Ran(seconds, run.memory(), read_pace() if question.executions and not watched else None)
            case Parts(step_seconds, seconds):
                return OverheadMeter(self._bench, time.perf_counter() + seconds).measure(run, step_seconds)
            case DenormalShare():
                return run.denormal_share()
            case Drop():
                run.drop()
                return None
            case Least():
                return estimate_least_memory(self._bench.workload, run.batch_size)


def unmapped_bytes(libraries: int) -> int:
    """A fork begins without the pages of libraries that its parent had mapped, and takes those it needs again: how many
    bytes it lacks of the `libraries` that a process has which imported them itself."""
    return max(libraries - (read_file_bytes() or libraries), 0)


def with_libraries(memory: MemoryPeak, before: int, now: int) -> MemoryPeak:
    """As of a process that imported its libraries itself. before, now: what the fork lacked of them, in bytes."""
    base, peak = memory.process_base_bytes, memory.process_bytes
    if base is None or peak is None:
        return memory
    # What was free before the model was built may be handed back by the peak: a small model then adds nothing.
    return replace(memory, process_base_bytes=min(base + before, peak + now), process_bytes=peak + now)
