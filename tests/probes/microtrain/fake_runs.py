"""Steps that take what a test says, on a clock that nothing else moves."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

from probes.workload.description import Plan
from tests.app.advisor.build import ONE


class FakeClock:
    """In the place of the module time; moved by fake steps alone."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


class FakeRun:
    """A StepRun, and its step, that takes `seconds` on the fake clock and nothing else."""

    def __init__(
        self, clock: FakeClock, plan: Plan = ONE, batch_size: int = 4, seconds: Callable[[], float] = lambda: 0.002
    ) -> None:
        self.plan, self.batch_size = plan, batch_size
        self.calls: list[int] = []
        self._clock, self._seconds = clock, seconds

    def setting(self) -> nullcontext[None]:
        return nullcontext()

    def prepared(self) -> FakeRun:
        return self

    def __call__(self, executions: int = 1) -> None:
        self.calls.append(executions)
        self._clock.now += self._seconds() * executions
