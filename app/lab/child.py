"""One micro-training process: started, spoken to in JSON lines, and ended together with its children."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from app.errors import LabError
from app.lab.child_endings import say_killed, say_overdue
from app.lab.temporary_folder import TemporaryFolder
from probes.gpu.device_order import BY_BUS
from probes.oom_kills import read_oom_kills
from probes.reading import Root
from probes.workload.description import PLAN_VARIABLES
from probes.workload.models import CALLING

log = logging.getLogger(__name__)

OnEvent = Callable[[dict[str, Any]], None]

# A profile's or a trace's line is a few MB at most; a child that sends more without a line's end has gone wrong.
MAX_LINE_BYTES = 64 * 1024 * 1024
STDERR_TAIL_BYTES = 8 * 1024
# torch and transformers from a cold disk: 20 s were seen; a driver that hangs takes for ever.
READY_SECONDS = 90.0
# The end of its input, then TERM, then KILL; together below the 5 s that ending the service may take.
EXIT_SECONDS = 1.0
TERM_SECONDS = 1.5
KILL_SECONDS = 1.0
# No number of a process comes round again within that time.
LOOK_SECONDS = 10.0
# How often it is looked whether what was killed has ended: no event tells of a process that somebody else started.
ORPHANS_SECONDS = 0.01
# The kernel should take the measuring process before anything else (proc(5): -1000 never, 1000 first).
OOM_SCORE_ADJUSTMENT = "900"

PROGRAM: tuple[str, ...] = (sys.executable, "-P", "-m", "probes.microtrain")


def child_environment(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's own, without network for Hugging Face, with CUDA's devices by their places on the bus, and
    without what only a plan brings: a plain one is plain in every shell. environment: a plan's."""
    return {
        **_without_room(),
        **{name: value for name, value in os.environ.items() if name not in PLAN_VARIABLES},
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "TRANSFORMERS_VERBOSITY": "error",
        "TOKENIZERS_PARALLELISM": "false",
        **BY_BUS,
        "PYTHONUNBUFFERED": "1",
        **(environment or {}),
    }


def _without_room() -> dict[str, str]:
    """On a full disk torch fails to import its compiler, which is not used here, unless that is told where its cache
    is: it writes a file to find a folder for temporary ones."""
    try:
        with tempfile.TemporaryFile() as file:
            file.write(b"x")
            file.flush()
    except OSError:
        return {"TORCHINDUCTOR_CACHE_DIR": "/tmp"}
    return {}


class Child:
    """Use `Child.start`, then `run` for each job, then `end`."""

    def __init__(self, process: Process, living: set[Child], folder: TemporaryFolder | None) -> None:
        self._process = process
        self._folder = folder  # of its temporary files
        self._living = living
        living.add(self)
        self._stderr_tail = bytearray()
        self._stderr_task = asyncio.create_task(self._keep_stderr())
        self._group_task = asyncio.create_task(self._end_group())
        self._ending: asyncio.Task[None] | None = None
        self._jobs = 0
        self._kind = ""  # of the last job
        self._oom_kills = read_oom_kills(Root())  # as that began
        self.ready: dict[str, Any] = {}
        self.start_seconds = 0.0  # until it was ready

    @classmethod
    async def start(
        cls,
        living: set[Child],
        program: Sequence[str] = PROGRAM,
        *,
        ready_seconds: float = READY_SECONDS,
        environment: Mapping[str, str] | None = None,
    ) -> Child:
        """Start a process in a session of its own and wait until it is ready; it is in `living` until it has ended.
        environment: what it has beside this one's own. Raises LabError."""
        begun = time.monotonic()
        folder = TemporaryFolder.make()
        try:
            process = await asyncio.create_subprocess_exec(
                *program,
                *(("--temporary", folder.path) if folder is not None else ()),
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                env=child_environment(environment),
                start_new_session=True,
                limit=MAX_LINE_BYTES,
            )
        except BaseException as error:
            if folder is not None:
                folder.remove()
            if isinstance(error, OSError):
                raise LabError("failed", f"The measuring process could not be started: {error.strerror}.") from error
            raise
        child = cls(process, living, folder)
        child._offer_to_the_oom_killer()
        try:
            async with asyncio.timeout(ready_seconds):
                child.ready = await child._next_event()
        except TimeoutError:
            await child.end()
            raise LabError(
                "failed", f"The measuring process was not ready after {ready_seconds:.0f} seconds."
            ) from None
        except BaseException:
            await child.end()
            raise
        child.start_seconds = time.monotonic() - begun
        return child

    @property
    def alive(self) -> bool:
        """Whether it can be sent a job."""
        return self._ending is None and self._runs

    @property
    def _runs(self) -> bool:
        return self._process.returncode is None

    @property
    def pid(self) -> int:
        return self._process.pid

    async def run(
        self, job: dict[str, Any], deadline_seconds: float, on_event: OnEvent | None = None
    ) -> dict[str, Any]:
        """Send a job and wait for its result; `on_event` is called with each progress event. A result with which the
        process ends is given once it has ended, or been ended: what comes next is for another process.

        Raises LabError when the job fails, the process dies or the deadline passes; but for a job that said
        `failed` by itself the process has to be ended then: its state is not known.
        """
        self._jobs += 1
        self._kind = str(job.get("kind"))
        self._oom_kills = read_oom_kills(Root())
        name, calling = f"{self.pid}-{self._jobs}", False
        if self._runs:  # what a job wrote that was answered are not the words with which a later one ends
            self._stderr_tail.clear()
        try:
            async with asyncio.timeout(deadline_seconds):
                await self._send({**job, "job": name})
                while True:
                    event = await self._next_event()
                    if event.get("job") != name:
                        continue
                    if event.get("event") == "result":
                        break
                    if event.get("event") == "failed":
                        raise LabError(*_failure_of(event))
                    calling = event.get("message") == CALLING
                    if on_event is not None:
                        on_event(event)
        except TimeoutError:
            await self.end()
            raise LabError("too-slow", say_overdue(self._kind, deadline_seconds, calling=calling)) from None
        if event.get("last") is True:
            await self.end()  # where it lost a device it may be held up in the driver
        return _result_of(event)

    async def end(self) -> None:
        """The end of its input, by which it ends with its children and waits for them, so that what they computed is
        counted as ours; then TERM, then KILL, to all of them; each wait is bounded. Whoever is cancelled meanwhile
        leaves when the process has ended, and no earlier."""
        if self._ending is None:
            self._ending = asyncio.create_task(self._end())
        try:
            await asyncio.shield(self._ending)
        except asyncio.CancelledError:
            await asyncio.wait([self._ending])
            raise

    async def _end(self) -> None:
        try:
            await self._end_process()
        finally:
            if self._folder is not None:
                self._folder.remove()
            self._living.discard(self)

    async def _end_process(self) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        await self._wait(EXIT_SECONDS)
        if self._runs:
            self._signal_group(signal.SIGTERM)
            await self._wait(TERM_SECONDS)
        self.kill()  # also what outlived its parent
        await asyncio.wait([self._group_task], timeout=KILL_SECONDS)
        self._group_task.cancel()
        self._stderr_task.cancel()
        transport = getattr(self._process, "_transport", None)
        if transport is not None:  # closes the pipes, even those that a grandchild in another session still holds
            transport.close()

    def kill(self) -> None:
        """KILL the process and its children, and wait for nothing."""
        if not self._group_task.done():
            self._signal_group(signal.SIGKILL)

    async def _end_group(self) -> None:
        """KILL what outlives the process when that is seen to have ended: later its number may be another group's."""
        while self._runs:  # in later Pythons `wait` lasts as long as a grandchild holds a pipe
            await self._wait(LOOK_SECONDS)
        self._signal_group(signal.SIGKILL)
        await self._wait_for_orphans()

    async def _wait_for_orphans(self) -> None:
        """Of the group, where they are this process's to wait for: a container's first process is given what others
        leave behind, and what it never waits for stays in the table of processes. Elsewhere there is none."""
        deadline = time.monotonic() + KILL_SECONDS
        with contextlib.suppress(ChildProcessError):
            while time.monotonic() < deadline:
                if not os.waitpid(-self.pid, os.WNOHANG)[0]:  # noqa: ASYNC222 - it does not block
                    await asyncio.sleep(ORPHANS_SECONDS)

    async def _send(self, job: dict[str, Any]) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        try:
            stdin.write(json.dumps(job, separators=(",", ":"), allow_nan=False).encode() + b"\n")
            await stdin.drain()
        except (ConnectionError, RuntimeError):
            raise await self._death() from None

    async def _next_event(self) -> dict[str, Any]:
        """The next JSON object from the child. Lines that are none come from libraries, and are passed over."""
        stdout = self._process.stdout
        assert stdout is not None
        while True:
            try:
                line = await stdout.readline()
            except ValueError:
                await self.end()
                raise LabError("failed", "The measuring process sent a line without end and was ended.") from None
            if not line:
                raise await self._death()
            with contextlib.suppress(ValueError, RecursionError):
                event = json.loads(line)
                if isinstance(event, dict) and "event" in event:
                    return event

    async def _death(self) -> LabError:
        """The error that says how the process ended."""
        await self._wait(KILL_SECONDS)
        await asyncio.wait([self._stderr_task], timeout=KILL_SECONDS)
        code = self._process.returncode
        log.warning("A measuring process ended (exit code %s). Its last words: %s", code, self._last_words())
        if code == -signal.SIGKILL:
            return LabError("killed", say_killed(self._kind, self._oom_kills, read_oom_kills(Root())))
        if code is not None and code < 0:
            return LabError("failed", f"The measuring process was ended by signal {_signal_name(-code)}.")
        return LabError("failed", f"The measuring process ended by itself (exit code {code}); the log says more.")

    def _last_words(self) -> str:
        """The last line that the process wrote to standard error; a traceback ends with its error. For the log only:
        it may hold paths."""
        lines = self._stderr_tail.decode(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else "(none)"

    async def _keep_stderr(self) -> None:
        """Keep the end of standard error, and keep it flowing: a full pipe would stop the child."""
        stderr = self._process.stderr
        assert stderr is not None
        while chunk := await stderr.read(4096):
            self._stderr_tail += chunk
            del self._stderr_tail[:-STDERR_TAIL_BYTES]

    async def _wait(self, seconds: float) -> None:
        if self._runs:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), seconds)

    def _signal_group(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def _offer_to_the_oom_killer(self) -> None:
        with contextlib.suppress(OSError):
            Path(f"/proc/{self.pid}/oom_score_adj").write_text(OOM_SCORE_ADJUSTMENT)


def _result_of(event: dict[str, Any]) -> dict[str, Any]:
    result = event.get("result")
    if not isinstance(result, dict):
        raise LabError("failed", "The measuring process sent a result that is no document.")
    return result


def _failure_of(event: dict[str, Any]) -> tuple[str, str]:
    return str(event.get("code") or "failed"), str(event.get("reason") or "The measuring process gave no reason.")


def _signal_name(number: int) -> str:
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return str(number)
