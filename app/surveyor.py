"""Keeps the survey: taken in a thread, a second old at most when it is read, and ready as bytes.

While somebody asks, the next survey is taken before the last one is too old, so that nobody waits for it; while
nobody asks, nothing runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from app.settings import Settings
from probes.hardware import Cpu, Finding, Memory, Outcome, ProbeReport, Severity, Software, Survey, System

T = TypeVar("T")
log = logging.getLogger(__name__)

MAX_AGE_SECONDS = 1.0
# From this age on a reader sets off the next survey, which takes some 30 ms, without waiting for it.
REFRESH_AGE_SECONDS = 0.6
# Beyond the survey's own deadline; a survey that is later still is a fault, and is reported as one.
PATIENCE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Reading:
    """A survey, when it was taken, and its JSON."""

    survey: Survey
    taken_at: float
    body: bytes

    @property
    def age_seconds(self) -> float:
        return time.monotonic() - self.taken_at


class Surveyor:
    """For one event loop."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._reading: Reading | None = None
        self._task: asyncio.Task[Reading] | None = None
        self._torch: dict[str, Any] | None = None

    @property
    def latest(self) -> Reading | None:
        """The last survey however old; None before the first. Never waits, never touches the machine."""
        return self._reading

    async def read(self, *, fresh: bool = False) -> Reading:
        """A survey that is a second old at most; `fresh`: one that begins now."""
        reading = self._reading
        if fresh or reading is None or reading.age_seconds > MAX_AGE_SECONDS:
            if fresh and self._task is not None:
                await asyncio.wait([self._task])
            return await asyncio.shield(self._refresh())
        if reading.age_seconds > REFRESH_AGE_SECONDS:
            self._refresh()
        return reading

    async def learn_torch(self, ready: dict[str, Any]) -> Reading:
        """Merge what a micro-training process said of torch's devices into this survey and all later ones."""
        self._torch = ready
        return await self.read(fresh=True)

    def _refresh(self) -> asyncio.Task[Reading]:
        """The survey that is being taken; one begins when there is none."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._take())
        return self._task

    async def _take(self) -> Reading:
        started = time.monotonic()
        try:
            async with asyncio.timeout(self._settings.survey_seconds + PATIENCE_SECONDS):
                survey, body = await in_daemon_thread(self._take_now)
        except TimeoutError:
            survey = _unanswered("the survey took longer than its deadline", Outcome.TIMEOUT)
            body = encode_survey(survey)
        except Exception as error:  # a fault of ours must not take the service down
            log.exception("The survey failed.")
            survey = _unanswered(f"the survey failed ({type(error).__name__})", Outcome.FAILED)
            body = encode_survey(survey)
        self._reading = Reading(survey, started, body)
        return self._reading

    def _take_now(self) -> tuple[Survey, bytes]:
        from probes.survey import take_survey, with_torch_facts  # late: the service answers before this is imported

        settings = self._settings
        survey = take_survey(
            settings.sysroot, deadline_seconds=settings.survey_seconds, storage_paths=(settings.data_dir,)
        )
        if self._torch is not None:
            survey = with_torch_facts(survey, self._torch)
        return survey, encode_survey(survey)


def encode_survey(survey: Survey) -> bytes:
    """The body of `GET /hardware`."""
    return json.dumps(survey.to_json(), ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


async def in_daemon_thread(work: Callable[[], T]) -> T:
    """Run `work` in a thread that does not keep the process from ending, should it hang.

    (asyncio.to_thread's threads are joined at exit.)
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, error = None, None
        try:
            result = work()
        except BaseException as caught:  # noqa: BLE001 - handed to whoever waits
            error = caught
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits any more
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, daemon=True, name="survey").start()
    return await future


def _unanswered(reason: str, outcome: Outcome) -> Survey:
    """A survey that says nothing but why."""
    return Survey(
        surveyed_at=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        fingerprint="",
        system=System(),
        cpu=Cpu(),
        memory=Memory(),
        accelerators=(),
        storage=(),
        software=Software(),
        findings=(Finding("no-survey", Severity.ERROR, "survey", f"Nothing is known of this machine: {reason}."),),
        probes={"survey": ProbeReport(outcome, None, reason)},
    )
