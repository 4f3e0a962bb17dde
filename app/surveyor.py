"""Keeps the survey: taken in a thread, its facts a second old at most when it is read, and ready as bytes.

While somebody asks, the next survey is taken before the last one is too old, so that nobody waits for it; while
nobody asks, nothing runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from app.settings import Settings
from app.torch_word import TorchWord
from probes.fingerprint import Identity, hash_identity, of_another_process, settle_identity
from probes.hardware import Cpu, Finding, Memory, Outcome, ProbeReport, Severity, Software, Survey, System

if TYPE_CHECKING:
    from probes.gpu.nvidia_kept import KeptNvidia

T = TypeVar("T")
log = logging.getLogger(__name__)

# A survey's own age, and the age of what NVIDIA's watched cards told when it was taken: together a second at most.
MAX_AGE_SECONDS = 0.5
WATCH_SECONDS = 0.5
# From this age on a reader sets off the next survey, which takes some 30 ms, without waiting for it.
REFRESH_AGE_SECONDS = 0.3
# Nobody asked for this long: nothing goes on.
REST_SECONDS = 10.0
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


async def _recall_nothing() -> Identity | None:
    return None


class Surveyor:
    """For one event loop.

    recall: the identity that an earlier process last saw, for a driver that hangs from the start.
    nvidia: shared with whoever watches the cards; it ends what it started when nobody has asked for a while.
    """

    def __init__(self, settings: Settings, recall: Callable[[], Awaitable[Identity | None]] = _recall_nothing) -> None:
        self._settings = settings
        self._recall = recall
        self._identity: Identity | None = None
        self._nvidia: KeptNvidia | None = None
        self._making = threading.Lock()
        self._rest: asyncio.TimerHandle | None = None
        self._holders = 0
        self._reading: Reading | None = None
        self._task: asyncio.Task[Reading] | None = None
        self._torch: TorchWord | None = None
        self._has_heard_torch = False

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

    @property
    def nvidia(self) -> KeptNvidia:
        """Made, and its module imported, with the first survey: the service answers before."""
        from probes.gpu.nvidia_kept import KeptNvidia
        from probes.gpu.nvml_watch import NvmlWatch

        with self._making:  # the survey's thread and the feed's
            self._nvidia = self._nvidia or KeptNvidia(NvmlWatch(WATCH_SECONDS))
            return self._nvidia

    @property
    def identity(self) -> Identity | None:
        """Of the last survey; None before the first, or where a part of it is known to nobody."""
        return None if self._identity is None or None in self._identity.values() else self._identity

    @contextlib.contextmanager
    def awake(self) -> Iterator[None]:
        """Cards stay watched for as long as this is held."""
        self._holders += 1
        if self._rest is not None:
            self._rest.cancel()
        try:
            yield
        finally:
            self._holders -= 1
            self._rest_later()

    async def close(self) -> None:
        """End what watches the cards."""
        if self._rest is not None:
            self._rest.cancel()
        self._holders = 1  # no survey that is still under way sets it off again
        if self._nvidia is not None:
            await in_daemon_thread(self._nvidia.stop)

    @property
    def knows_torch(self) -> bool:
        """Whether a micro-training process has said what torch sees of the cards that are here now."""
        return self._torch is not None

    @property
    def doubts_torch(self) -> bool:
        """Whether to ask again: nobody has said it, or of a device that did not start, and a while ago."""
        return self._torch is None or self._torch.is_doubtful

    @property
    def has_heard_torch(self) -> bool:
        """Whether a micro-training process ever said it: one that still runs would say the same."""
        return self._has_heard_torch

    def torch_stands(self, ready: dict[str, Any] | None) -> bool:
        """Whether a newer process bears out what was said, or could not be asked (None): it is doubted later then."""
        if self._torch is not None and ready is None:
            self._torch.hold_longer()
            return True
        return self._torch is not None and ready is not None and self._torch.bears_out(ready)

    async def learn_torch(self, ready: dict[str, Any]) -> Reading:
        """Merge what a micro-training process said of torch's devices into this survey and all later ones, until they
        tell of other cards or drivers, or of another torch."""
        self._torch, self._has_heard_torch = TorchWord(ready), True
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
                before = self._identity
                survey, self._identity, body = await in_daemon_thread(lambda: self._take_now(before))
            if self.identity is None and self._reading is None:
                survey, body = await self._ask_the_past(survey)
        except TimeoutError:
            survey = _unanswered("the survey took longer than its deadline", Outcome.TIMEOUT)
            body = encode_survey(survey)
        except Exception as error:  # a fault of ours must not take the service down
            log.exception("The survey failed.")
            survey = _unanswered(f"the survey failed ({type(error).__name__})", Outcome.FAILED)
            body = encode_survey(survey)
        self._reading = Reading(survey, started, body)
        self._rest_later()
        return self._reading

    async def _ask_the_past(self, survey: Survey) -> tuple[Survey, bytes]:
        """The first survey with a part that it could not tell, as an earlier process saw that."""
        recalled = await self._recall()
        self._identity = self._settle(survey, None if recalled is None else of_another_process(recalled))
        survey = replace(survey, fingerprint=hash_identity(self._identity))
        return survey, encode_survey(survey)

    def _rest_later(self) -> None:
        if self._rest is not None:
            self._rest.cancel()
        if not self._holders:
            rest = threading.Thread(target=self.nvidia.stop, daemon=True, name="rest")
            self._rest = asyncio.get_running_loop().call_later(REST_SECONDS, rest.start)

    def _settle(self, survey: Survey, before: Identity | None) -> Identity:
        """A captured machine's cards are hidden from nobody."""
        return settle_identity(survey, before, os.environ if self._settings.sysroot == Path("/") else {})

    def _take_now(self, before: Identity | None) -> tuple[Survey, Identity, bytes]:
        from probes.survey import take_survey, with_torch_facts  # late: the service answers before this is imported

        settings = self._settings
        survey = take_survey(
            settings.sysroot,
            deadline_seconds=settings.survey_seconds,
            storage_paths=(settings.data_dir,),
            read_nvidia=self.nvidia.read,
        )
        identity = self._settle(survey, before)
        survey = replace(survey, fingerprint=hash_identity(identity))
        torch = self._torch
        if torch is not None and not torch.holds_for(survey):
            log.info("Torch, or the cards that drivers tell of, are others than when it was asked: that is forgotten.")
            if self._torch is torch:  # not what was said meanwhile
                self._torch = None
            torch = None
        if torch is not None:
            survey = with_torch_facts(survey, torch.ready)
        return survey, identity, encode_survey(survey)


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
        findings=(
            Finding(
                "no-survey",
                Severity.ERROR,
                "survey",
                f"Nothing is known of this machine: {reason}.",
                "crosspoint hardware shows what each probe says; CROSSPOINT_SURVEY_SECONDS=30 gives them more time.",
                documentation="docs/findings/no-survey.md",
            ),
        ),
        probes={"survey": ProbeReport(outcome, None, reason)},
    )
