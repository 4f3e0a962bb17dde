"""The process that traces models: kept warm between traces, because importing torch takes longer than tracing."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from app.errors import LabBusy, LabError
from app.lab.child import Child
from probes.installed import Stamp, stamp_of

# Building 100,000 modules under fake tensors took about 30 s on two busy cores; a model that takes longer is refused.
TRACE_SECONDS = 60.0
# Traces that may wait for the one that runs.
MAX_WAITING = 16
# What a trace is taken to last before any has run, and the share of the newest in what they usually last.
FIRST_GUESS_SECONDS, NEWEST_SHARE = 1.0, 0.3
# Kernels are tried by two processes at once there: a thread that waits for another should not hold a core meanwhile.
# Each is tried a few times in a row, and of another model hardly one comes again: of the thousand that oneDNN keeps
# compiled, and torch once more, a small config's are 20 MB. With these few, and a profiler that lets go of little, it
# leaves some 3 MB.
ENVIRONMENT = {
    "OMP_WAIT_POLICY": "PASSIVE",
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64",
    "LRU_CACHE_CAPACITY": "64",
}
# A process goes on with what it has imported: once one of these was installed anew, another does the next.
PACKAGES = ("torch", "transformers")
# Then a fresh process does the next: what each leaves adds up.
MOST_JOBS = 100
# So long after such a trace, and while nothing is measured, unless there were as many traces again: starting it takes
# all cores for some seconds.
SUCCESSION_SECONDS = 3.0
# Failures after which the process is as good as before: it looked at the job and said no.
_HARMLESS = frozenset({"invalid-job", "invalid-model", "unsupported"})


class Tracer:
    """One job at a time. The process ends after `idle_seconds` without work, where PACKAGES were installed anew, and
    after MOST_JOBS jobs, once another is as ready as it was."""

    def __init__(
        self,
        idle_seconds: float,
        living: set[Child],
        program: Sequence[str],
        check_open: Callable[[], None],
        is_measuring: Callable[[], bool] = lambda: False,
    ) -> None:
        """check_open: raises LabError once no process is to be started any more. is_measuring: whether a measurement
        runs, which what nobody waits for is not to disturb."""
        self._program = program
        self._check_open = check_open
        self._is_measuring = is_measuring
        self._is_scarce = False  # there is no memory for two of these processes
        self._idle_seconds = idle_seconds
        self._living = living
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._usual_seconds = FIRST_GUESS_SECONDS
        self._child: Child | None = None
        self._jobs = 0  # of this process
        self._made_of: tuple[Stamp | None, ...] = ()  # what was installed as it started
        self._options: tuple[str, ...] = ()  # of its command line, as configs need them once one was traced
        self._is_prepared = False  # somebody had it made ready for the first config
        self._successor: asyncio.Task[None] | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._ending: set[asyncio.Task[None]] = set()

    @property
    def warm(self) -> bool:
        """A process is there and answers."""
        return self._child is not None and self._child.alive

    async def ready(self) -> dict[str, Any]:
        """What the process said when it started (docs/protocol.md, `ready`). Raises LabError."""
        async with self._turn:
            child = await self._warm_child()
            self._rest()
            return child.ready

    async def end(self) -> None:
        """End the process, once what it does is done; the next job starts another."""
        async with self._turn:
            await self.close()

    def rest_at_most(self, seconds: float) -> None:
        """From the next job on, end after this long without work: memory is scarce."""
        self._idle_seconds = min(self._idle_seconds, seconds)
        self._is_scarce = True

    async def run(self, job: dict[str, Any]) -> dict[str, Any]:
        """The job's result. Raises LabError, and LabBusy when too many wait."""
        if self._waiting >= MAX_WAITING:
            seconds = math.ceil(self._waiting * self._usual_seconds)
            raise LabBusy(seconds, f"{self._waiting} models are being traced or wait for it.")
        self._waiting += 1
        try:
            async with self._turn:
                return await self._run_in_turn(job)
        finally:
            self._waiting -= 1

    async def _run_in_turn(self, job: dict[str, Any]) -> dict[str, Any]:
        """And note how long that took, however it ended."""
        begun = time.monotonic()
        try:
            return await self._run_alone(job)
        finally:
            self._usual_seconds += NEWEST_SHARE * (time.monotonic() - begun - self._usual_seconds)

    async def close(self) -> None:
        self._cancel_idle()
        if self._successor is not None and not self._successor.done():
            self._successor.cancel()
            self._ending.add(self._successor)
            self._successor.add_done_callback(self._ending.discard)
        child, self._child = self._child, None
        if child is not None:
            await child.end()
        if self._ending:
            await asyncio.wait(self._ending)

    async def _run_alone(self, job: dict[str, Any]) -> dict[str, Any]:
        self._options = _options_for(job) or self._options
        child = await self._warm_child()
        self._jobs += 1
        try:
            result = await child.run(job, job.get("seconds") or TRACE_SECONDS)
            self._is_prepared |= job.get("kind") == "prepare"
            return result
        except LabError as error:
            if error.code not in _HARMLESS:
                await self.close()
            self._check_open()  # what ended the process then is nothing that anybody could mend
            raise
        except BaseException:  # cancelled: the process still works on it
            await self.close()
            raise
        finally:
            self._rest()

    async def _warm_child(self) -> Child:
        self._check_open()
        self._cancel_idle()
        installed = _installed()
        if self._child is None or not self._child.alive or self._made_of != installed:
            await self.close()
            self._child, self._jobs, self._made_of = await self._start(), 0, installed
            await self._end_if_shut()
        return self._child

    async def _start(self) -> Child:
        return await Child.start(self._living, (*self._program, *self._options), environment=ENVIRONMENT)

    async def _succeed(self) -> None:
        """Put another process in the place of this one, which goes on until that is as ready as it was. Where none can
        be had, it stays, for as many jobs again; where there is no memory for both, the next job starts another."""
        if self._is_scarce:
            async with self._turn:
                self._let_go()
            return
        await asyncio.sleep(SUCCESSION_SECONDS)
        while self._is_measuring() and self._jobs < 2 * MOST_JOBS:  # noqa: ASYNC110 - who measures has no event for this
            await asyncio.sleep(SUCCESSION_SECONDS)
        if self._child is None:  # it ended meanwhile
            return
        self._jobs, installed = 0, _installed()
        with contextlib.suppress(LabError):
            child = await self._start()
            try:
                if self._is_prepared:
                    await child.run({"kind": "prepare"}, TRACE_SECONDS)
                async with self._turn:
                    self._check_open()
                    self._let_go()
                    self._child, self._jobs, self._made_of = child, 0, installed
                    self._rest()
            finally:
                if self._child is not child:
                    await child.end()

    async def _end_if_shut(self) -> None:
        """What ends every process may have come while this one was started. Raises LabError."""
        try:
            self._check_open()
        except LabError:
            await self.close()
            raise

    def _rest(self) -> None:
        self._cancel_idle()
        if self._child is not None and self._jobs >= MOST_JOBS and (self._successor is None or self._successor.done()):
            self._successor = asyncio.create_task(self._succeed())
        if self._child is not None:
            self._idle = asyncio.get_running_loop().call_later(self._idle_seconds, self._end_idle)

    def _end_idle(self) -> None:
        if not self._turn.locked():
            self._let_go()

    def _let_go(self) -> None:
        """Of the process, which ends while others go on."""
        child, self._child = self._child, None
        if child is not None:
            task = asyncio.create_task(child.end())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    def _cancel_idle(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None


def _installed() -> tuple[Stamp | None, ...]:
    return tuple(stamp_of(package) for package in PACKAGES)


def _options_for(job: Mapping[str, Any]) -> tuple[str, ...]:
    """A config's trace takes seconds: another process takes half of it, and loads what it needs meanwhile."""
    model = job.get("model") or job.get("workload", {}).get("model", {})
    return ("--forks", "--configs") if model.get("kind") == "huggingface" else ()
