"""Traces: kept by a model's content, and made once however many ask for one meanwhile."""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from app import labjobs
from app.errors import RETRY_SECONDS, LabError
from app.keeping import Kept, RunJob, parse_sent, trouble_with, unless_unreadable
from app.lab.child_endings import OVERDUE
from app.store import Store
from probes.fingerprint import hash_identity, identify_cpu, silent_parts
from probes.hardware import Survey
from probes.reading import Root, Unreadable
from probes.software import read_torch
from probes.trace import Trace
from probes.workload.description import Workload

Making: TypeAlias = Coroutine[Any, Any, Kept[Trace]]

REMEMBERED_TRACES = 64
# A trace that another try in as much time would not bring. What failed or was killed may come when it is tried again.
# What was too slow may have been so beside others who held the cores: that lapses.
TOO_SLOW_SECONDS = 600.0
# Memory ran out beside others, or does each time; each try costs the process that traces.
OUT_OF_MEMORY_SECONDS = 60.0
LASTING_REFUSALS = {
    "unsupported": math.inf,
    "too-slow": TOO_SLOW_SECONDS,
    "out-of-memory": OUT_OF_MEMORY_SECONDS,
}  # seconds
REMEMBERED_REFUSALS = 1024  # a code, a sentence and two numbers each


@dataclass(frozen=True, slots=True)
class _Refusal:
    """seconds: that the trace had. until: by the clock, when another try may bring one."""

    seconds: float
    code: str
    sentence: str
    until: float


@dataclass(frozen=True, slots=True)
class _Making:
    """seconds: that it may take."""

    task: asyncio.Task[Kept[Trace]]
    seconds: float

    async def join(self, seconds: float) -> Kept[Trace]:
        """What it makes. Raises what that raises, and LabError after these seconds, where they are fewer than its."""
        try:
            async with asyncio.timeout(seconds if seconds < self.seconds else None):
                return await asyncio.shield(self.task)
        except TimeoutError:
            text = f"The trace, begun for another question, was not there after {seconds:.0f} seconds."
            raise LabError("too-slow", f"{text} {OVERDUE['trace'][1]}") from None


class Traces:
    """The last ones are in memory, all others in the store; what cannot be traced is remembered in memory alone.

    captured: the surveys are of a captured machine, which traces nothing: this host does, so that its own torch and CPU
    are what traces are told apart by."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic, *, captured: bool = False) -> None:
        self._store = store
        self._clock = clock
        self._captured = captured
        self._own_cpu: str | None = None  # this host's; None: not read yet
        self._known: OrderedDict[object, Trace] = OrderedDict()
        self._refusals: OrderedDict[object, _Refusal] = OrderedDict()
        self._making: dict[object, _Making] = {}

    async def close(self) -> None:
        """Wait for those that are being made; the end of the lab ends them."""
        if self._making:
            await asyncio.wait([making.task for making in self._making.values()])

    async def find(self, survey: Survey, workload: Workload, *, devices: bool = False) -> Trace | None:
        """The trace of this workload's content under the torch that is installed, if it was made before on this CPU,
        which decides about kernels and what autocast runs; devices: with the step as a device runs it."""
        cpu = await self._cpu(survey)
        key = (self._trace_key(survey, workload), cpu)
        if key in self._known:
            self._known.move_to_end(key)
            found: Trace | None = self._known[key]
        else:
            found = await unless_unreadable(self._store.trace(workload, self._torch_version(survey), cpu))
            if found is not None:
                self._remember(key, found)
        return None if found is None or (devices and not found.devices) else found

    async def make(
        self, survey: Survey, workload: Workload, run: RunJob, seconds: float, *, devices: bool
    ) -> Kept[Trace]:
        """Trace now, by whichever process `run` speaks to, and keep it. seconds: after which that gives up. Raises
        LabError."""
        key, version = self._trace_key(survey, workload), self._torch_version(survey)
        try:
            trace = parse_sent(Trace.from_json, await run(labjobs.trace_job(workload, seconds, devices=devices)))
        except LabError as error:
            if error.code in LASTING_REFUSALS:
                until = self._clock() + LASTING_REFUSALS[error.code]
                self._remember_refusal((key, devices), _Refusal(seconds, error.code, str(error), until))
                if error.code == "out-of-memory":  # until then what is remembered answers
                    error.retry_after_seconds = int(OUT_OF_MEMORY_SECONDS)
            raise
        trace = replace(trace, cpu=await self._cpu(survey))
        self._remember((key, trace.cpu), trace)
        return Kept(trace, await trouble_with(self._store.keep_trace(workload, version, trace)))

    def refusal(self, survey: Survey, workload: Workload, seconds: float, *, devices: bool) -> LabError | None:
        """What an earlier try met, that had as many seconds or more; None where another may bring a trace."""
        known = self._refusals.get((self._trace_key(survey, workload), devices))
        if known is None or known.seconds < seconds or self._clock() >= known.until:
            return None
        left = known.until - self._clock()
        return LabError(known.code, known.sentence, RETRY_SECONDS if math.isinf(left) else math.ceil(left))

    async def once(
        self, survey: Survey, workload: Workload, make: Callable[[], Making], seconds: float, *, devices: bool
    ) -> Kept[Trace]:
        """What `make` makes, or what somebody else's makes already of the same content; it goes on when who asked has
        left, for it is kept for whoever asks next. seconds: after which `make` gives up, and who asks waits no longer
        for another's; one that had fewer and was too slow is made anew. Raises what that raises."""
        key = (self._trace_key(survey, workload), devices)
        while (others := self._making.get(key)) is not None:
            try:
                return await others.join(seconds)
            except LabError as error:
                if error.code != "too-slow" or seconds <= others.seconds:
                    raise
                self._end_making(key, others)  # who comes before its callback would join it again
        making = self._making[key] = _Making(asyncio.create_task(make()), seconds)
        making.task.add_done_callback(lambda _: self._end_making(key, making))
        return await asyncio.shield(making.task)

    def _end_making(self, key: object, making: _Making) -> None:
        if self._making.get(key) is making:
            del self._making[key]
        if not making.task.cancelled():
            making.task.exception()  # looked at here: everybody who asked may have left

    def _trace_key(self, survey: Survey, workload: Workload) -> object:
        return (workload.model.key, workload.mode, workload.stepped_by, self._torch_version(survey))

    def _torch_version(self, survey: Survey) -> str:
        torch = read_torch() if self._captured else survey.software.torch
        return (torch.version if torch else None) or "unknown"

    async def _cpu(self, survey: Survey) -> str:
        """As `cpu_of`, of the CPU that traces."""
        if not self._captured:
            return cpu_of(survey)
        if self._own_cpu is None:
            self._own_cpu = await asyncio.to_thread(_read_own_cpu)
        return self._own_cpu

    def _remember(self, key: object, trace: Trace) -> None:
        self._known[key] = trace
        while len(self._known) > REMEMBERED_TRACES:
            self._known.popitem(last=False)

    def _remember_refusal(self, key: object, refusal: _Refusal) -> None:
        self._refusals[key] = refusal
        self._refusals.move_to_end(key)
        while len(self._refusals) > REMEMBERED_REFUSALS:
            self._refusals.popitem(last=False)


def cpu_of(survey: Survey) -> str:
    """By which traces are told apart. Empty where this survey does not tell: that is no other CPU."""
    if "cpu" in silent_parts(survey.probes):
        return ""
    return hash_identity(identify_cpu(survey.cpu))


def _read_own_cpu() -> str:
    """This host's, as a survey of it would tell."""
    from probes.cpu import read_cpu  # late: the service answers before this is imported

    try:
        return hash_identity(identify_cpu(read_cpu(Root()).cpu))
    except Unreadable:
        return ""
