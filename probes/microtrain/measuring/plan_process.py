"""A plan's steps in a forked process, in the place of a `StepRun`: the process keeps its own time.

What a step takes depends on the heap of its process, and one that runs several plans in turns has another heap than a
user's, who runs one: an LSTM in bf16 took half as long there (docs/decisions/0005). So where there is time each plan
has a process of its own, and where there is none they share one, which has all imported that they need.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from probes.measurement import MemoryPeak, Overheads
from probes.microtrain.failures import Failure
from probes.microtrain.measuring.bench_process import BenchProcess, DenormalShare, Drop, Parts, Ran, Steps
from probes.workload.description import Plan, Workload

# As a contest warms up what begins; what was freed and taken again settles over the first steps.
WATCHED_STEPS, MORE_STEPS, WARM_UP_SECONDS = 2, 1, 0.01


class PlanProcess:
    """One plan at one batch size, as a contest wants it. The process begins when it is first needed.

    process: one that others run in as well; None: one of its own."""

    compile_seconds: float | None = None
    startup_seconds = 0.0  # of a device

    def __init__(
        self,
        workload: Workload,
        plan: Plan,
        batch_size: int,
        memory_limit_bytes: int | None,
        process: BenchProcess | None = None,
    ) -> None:
        self.plan = plan
        self.batch_size = batch_size
        self.is_alone = process is None
        self.process = process or BenchProcess(workload, memory_limit_bytes)
        self._ahead: list[float] = []
        self._readings: list[float] = []
        self._watching = False
        self._memory = MemoryPeak()

    def __call__(self, executions: int) -> float:
        """Seconds that they took, without the way to the process. Raises Failure."""
        if executions == 1 and self._ahead:
            return self._ahead.pop(0)
        ran = self.process.ask(self.plan, self.batch_size, Steps(executions, self._watching))
        assert isinstance(ran, Ran)
        # One that began in the place of one that died is not watched; heaps of several differ, as a user's do.
        if self._memory.process_bytes is None or (ran.memory.process_bytes or 0) > self._memory.process_bytes:
            self._memory = ran.memory
        if ran.pace is not None:
            self._readings.append(ran.pace)
        return ran.seconds

    def take_readings(self) -> list[float]:
        """Seconds of its cores' pace (probes.microtrain.quiet.pace), one after each run since they were last taken."""
        taken, self._readings = self._readings, []
        return taken

    def renew(self) -> None:
        """Goes on in another process, which is as warm and has another heap, as a user's next run. Raises Failure."""
        self.process.end()
        self._ahead.clear()
        for _ in range(WATCHED_STEPS):
            with self.watched():
                seconds = self(1)
        self(max(MORE_STEPS, int(WARM_UP_SECONDS / max(seconds, 1e-9))))

    def run_ahead(self) -> float:
        """Seconds of a step, which is what the next one asked for by itself is then said to take. Raises Failure."""
        with self.watched():
            ahead, self._ahead = self._ahead, []
            self._ahead = [*ahead, self(1)]
        return self._ahead[-1]

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Peaks of memory are taken; preparing is not part of what runs inside."""
        self.process.start(self.plan, self.batch_size)
        self._watching = True
        try:
            yield
        finally:
            self._watching = False

    def setting(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()  # the process has it, always

    def memory(self) -> MemoryPeak:
        return self._memory

    @property
    def pid(self) -> int | None:
        """Of the process that it runs in; None before it begins."""
        return self.process.pid

    @property
    def seconds_to_start(self) -> float:
        """Of its process, until it could run a step; 0 until then, and where it ran before."""
        return self.process.seconds_to_start if self.is_alone else 0.0

    @property
    def ahead_seconds(self) -> float:
        """That beginning took so far: its process, and what was run ahead; 0 where nothing was, or others run there."""
        return self.seconds_to_start + sum(self._ahead) if self._ahead and self.is_alone else 0.0

    def overheads(self, step_seconds: float, deadline: float) -> Overheads | None:
        """deadline: on time.perf_counter. None: they cannot be had before it."""
        left = deadline - time.perf_counter()
        if left <= 0 or not self.process.runs:
            return None
        found: Overheads | None = self.process.ask(self.plan, self.batch_size, Parts(step_seconds, left))
        return found

    def denormal_share(self) -> float:
        """Of the results of one real step (probes.microtrain.measuring.denormals). Raises Failure, also where its
        process has ended: another is not begun for this."""
        if not self.process.runs:
            raise self.process.ended()
        return float(self.process.ask(self.plan, self.batch_size, DenormalShare()))

    def drop(self) -> None:
        """Let go of what only this plan needs: its process, where it has one."""
        if self.is_alone:
            self.process.end()
        elif self.process.runs:
            with contextlib.suppress(Failure):
                self.process.ask(self.plan, self.batch_size, Drop())
