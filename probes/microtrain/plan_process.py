"""Runs a plan's steps in a process of its own, in the place of a `StepRun`: the process keeps its own time.

What a step takes depends on the heap of its process, and one that runs several plans in turns has another heap than a
user's, who runs one: an LSTM in bf16 took half as long there (docs/decisions/0005). Plans on a CPU only: what computes
on a device does not survive a fork.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from probes.measurement import MemoryPeak, Overheads
from probes.microtrain.failures import Failure, explain_step_failure
from probes.microtrain.footprint import limited_to, read_file_bytes
from probes.microtrain.fresh_processes import EndedEarly, Fresh
from probes.microtrain.overhead_meter import OverheadMeter
from probes.microtrain.workbench import StepRun, Workbench
from probes.workload.description import Plan, Workload

ENDED = "Its process ended before the step did, most likely for want of memory."


@dataclass(frozen=True, slots=True)
class _Steps:
    """A question: run so many. watched: peaks of memory are taken."""

    executions: int
    watched: bool


@dataclass(frozen=True, slots=True)
class _Parts:
    """A question: the overheads of a step that takes step_seconds, within so many seconds."""

    step_seconds: float
    seconds: float


@dataclass(frozen=True, slots=True)
class _DenormalShare:
    """A question."""


@dataclass(frozen=True, slots=True)
class _Ran:
    """An answer: seconds by the process's own clock, and the peaks as known by now."""

    seconds: float
    memory: MemoryPeak


class PlanProcess:
    """One plan at one batch size, as a contest wants it. The process begins when it is first needed.

    seconds_to_start: until it could run a step; 0 until then."""

    compile_seconds: float | None = None
    startup_seconds = 0.0  # of a device

    def __init__(self, workload: Workload, plan: Plan, batch_size: int, memory_limit_bytes: int | None) -> None:
        self.plan = plan
        self.batch_size = batch_size
        self.seconds_to_start = 0.0
        self._arguments = (workload.to_json(), plan.to_json(), batch_size, memory_limit_bytes)
        self._process: Fresh | None = None
        self._watching = False
        self._memory = MemoryPeak()

    def __call__(self, executions: int) -> float:
        """Seconds that they took, without the way to the process. Raises Failure."""
        ran = self._ask(_Steps(executions, self._watching))
        assert isinstance(ran, _Ran)
        self._memory = ran.memory
        return ran.seconds

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Peaks of memory are taken; preparing is not part of what runs inside."""
        self.start()
        self._watching = True
        try:
            yield
        finally:
            self._watching = False

    def setting(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()  # the process has it, always

    def memory(self) -> MemoryPeak:
        return self._memory

    def overheads(self, step_seconds: float, deadline: float) -> Overheads | None:
        """deadline: on time.perf_counter. None: they cannot be had before it."""
        left = deadline - time.perf_counter()
        if left <= 0 or self._process is None:
            return None
        found: Overheads | None = self._ask(_Parts(step_seconds, left))
        return found

    def denormal_share(self) -> float:
        """Of the results of one real step (probes.microtrain.denormals). Raises Failure."""
        return float(self._ask(_DenormalShare()))

    def drop(self) -> None:
        """End the process; the next step would start another."""
        if self._process is not None:
            self._process.end()
            self._process = None

    def start(self) -> None:
        """Until it could run a step. Raises Failure."""
        if self._process is None:
            begun = time.perf_counter()
            try:
                self._process = Fresh(_run_plan, self._arguments)
            except EndedEarly as error:
                raise Failure("failed", ENDED) from error
            self._ask(_Steps(0, watched=False))
            self.seconds_to_start = time.perf_counter() - begun

    def _ask(self, question: object) -> Any:
        self.start()
        assert self._process is not None
        try:
            answer = self._process.ask(question)
        except EndedEarly as error:
            raise Failure("failed", ENDED) from error
        if isinstance(answer, _Failed):
            raise Failure(answer.code, answer.text)
        return answer


@dataclass(frozen=True, slots=True)
class _Failed:
    """An answer: what the step died of; an exception of a user's own cannot always be sent."""

    code: str
    text: str


def _run_plan(
    serve: Callable[[Callable[[object], object]], object],
    workload: dict[str, Any],
    plan: dict[str, Any],
    batch_size: int,
    memory_limit_bytes: int | None,
) -> None:
    """In the plan's process, until nobody asks any more."""
    of, under = Workload.from_json(workload), Plan.from_json(plan)
    libraries = read_file_bytes(Path(f"/proc/{os.getppid()}")) or 0
    before = unmapped_bytes(libraries)
    bench = Workbench(of, frozenset([under.device]))
    run = StepRun(bench, under, batch_size)

    def answer(question: object) -> object:
        try:
            answered = _answer(bench, run, question)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a plan dies of is its own answer
            failure = explain_step_failure(error)
            return _Failed(failure.code, str(failure))
        if isinstance(answered, _Ran):
            return replace(answered, memory=with_libraries(answered.memory, before, unmapped_bytes(libraries)))
        return answered

    with run.setting(), limited_to(memory_limit_bytes):
        serve(answer)


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


def _answer(bench: Workbench, run: StepRun, question: object) -> object:
    match question:
        case _Steps(executions, watched):
            run.prepared()
            with run.watched() if watched else contextlib.nullcontext():
                begun = time.perf_counter()
                run(executions)
                seconds = time.perf_counter() - begun
            return _Ran(seconds, run.memory())
        case _Parts(step_seconds, seconds):
            return OverheadMeter(bench, time.perf_counter() + seconds).measure(run, step_seconds)
        case _DenormalShare():
            return run.denormal_share()
    raise TypeError(type(question).__name__)
