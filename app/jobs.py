"""Jobs: measurements and calibrations that somebody started and asks about later."""

from __future__ import annotations

import asyncio
import heapq
import logging
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from operator import itemgetter
from typing import Any, Literal

from app.advisor.request import InvalidRequest
from app.errors import CrosspointError, StoreError
from app.job_owners import may_run, this_owner
from app.keeping import Kept, OnProgress
from app.lab import Lab, Ticket
from app.store import Store
from app.store.jobs import OWNER

State = Literal["queued", "running", "succeeded", "failed", "cancelled"]
Kind = Literal["measurement", "calibration"]
# Does the work with a ticket's place in the queue; gives the result's JSON and why it was not saved.
Work = Callable[[Ticket, OnProgress], Awaitable[Kept[dict[str, Any]]]]

log = logging.getLogger(__name__)
REMEMBERED_JOBS, REMEMBERED_RESULTS = 100, 10
FINISHED: frozenset[State] = frozenset({"succeeded", "failed", "cancelled"})
LISTED_BY = frozenset({"id", "created_at"})


class Job:
    """One job. `document()` is what GET answers; `changed()` waits for the next change."""

    def __init__(self, kind: Kind, ticket: Ticket) -> None:
        self.id = secrets.token_hex(8)
        self.kind = kind
        self.ticket = ticket
        self.created_at = _now()
        self.finished_at: str | None = None
        self.is_stored = False  # as it ended
        self.is_let_go = False
        self.task: asyncio.Task[None] | None = None
        self.beginning: asyncio.Task[None] | None = None  # being kept as one that runs
        self._ended: State | None = None
        self._progress = 0.0
        self._message = ""
        self._failure: tuple[str, str] | None = None
        self._kept: Kept[dict[str, Any] | None] | None = None
        self._change = asyncio.Event()

    @property
    def state(self) -> State:
        return self._ended or ("running" if self.ticket.running else "queued")

    def document(self, *, with_result: bool = True) -> dict[str, Any]:
        """reason, code: why it failed. saved: whether the result is in the store (null: there is none)."""
        code, reason = self._failure or (None, None)
        document = {
            "id": self.id,
            "kind": self.kind,
            "state": self.state,
            "progress": self._progress,
            "message": self._message,
            "created_at": self.created_at,
            "finished_at": self.finished_at,
            "code": code,
            "reason": reason,
            "saved": None if self._kept is None else self._kept.trouble is None,
            "not_saved_because": None if self._kept is None else self._kept.trouble,
        }
        if with_result:
            document["result"] = None if self._kept is None else self._kept.value
        return document

    def report(self, fraction: float, message: str) -> None:
        self._progress, self._message = fraction, message
        self.notify()

    def finish(self, state: State, failure: tuple[str, str] | None = None, kept: Kept[Any] | None = None) -> None:
        self._ended, self._failure, self._kept = state, failure, kept
        self.finished_at = _now()
        if state == "succeeded":
            self._progress = 1.0
        self.notify()

    def let_go(self) -> None:
        """Of the result, which the store has: a calibration's is a megabyte."""
        if self._kept is not None:
            self._kept = Kept(None, self._kept.trouble)
            self.is_let_go = True

    def notify(self) -> None:
        """Wake everybody who waits for a change."""
        self._change.set()
        self._change = asyncio.Event()

    async def changed(self) -> None:
        await self._change.wait()


class Jobs:
    """Starts, finds and cancels jobs; the last ones are in memory, older ones and their results in the store."""

    def __init__(self, lab: Lab, store: Store) -> None:
        self._lab = lab
        self._store = store
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._closing = False

    async def start(self, kind: Kind, expected_seconds: float, work: Work) -> Job:
        """Begin `work` as soon as the machine is free. Raises LabBusy when the queue is full."""
        job = Job(kind, self._lab.reserve(expected_seconds))
        job.ticket.on_start = partial(self._begin, job)
        self._jobs[job.id] = job
        job.task = asyncio.create_task(self._run(job, work))
        finished = [other for other in self._jobs.values() if other.state in FINISHED]
        for old in sorted(finished, key=lambda other: not other.is_stored)[:-REMEMBERED_JOBS]:  # the store has those
            del self._jobs[old.id]
        await self._keep(job)
        return job

    def find(self, kind: Kind, name: str) -> Job | None:
        """A job of this process."""
        job = self._jobs.get(name)
        return job if job is not None and job.kind == kind else None

    async def document(self, kind: Kind, name: str) -> dict[str, Any] | None:
        """A job's document, of this process or of one before. Raises StoreError where nobody can tell."""
        job = self.find(kind, name)
        if job is not None and not job.is_let_go:
            return job.document()
        stored = await self._store.job(kind, name)
        if stored is not None:
            return self._told(stored)
        if self._store.unreadable is not None:
            raise StoreError(f"Jobs cannot be looked up: {self._store.unreadable}.")
        return job.document() if job is not None else None

    async def recent(self, kind: Kind) -> list[dict[str, Any]]:
        """Jobs of a kind without their results, newest first, whichever process runs or ran them. A stored one that has
        lost what it is listed by, as a disk may do, is passed over."""
        here = [job.document(with_result=False) for job in reversed(self._jobs.values()) if job.kind == kind]
        names = {document["id"] for document in here}
        try:
            stored = await self._store.jobs(kind)
        except StoreError:
            stored = []
        told = [row for row in stored if row.keys() >= LISTED_BY and row["id"] not in names]
        others = [{name: value for name, value in self._told(row).items() if name != "result"} for row in told]
        # Each of the two keeps its own order, which holds where the clock was set back.
        return list(heapq.merge(here, others, key=itemgetter("created_at"), reverse=True))

    async def cancel(self, job: Job) -> None:
        """End a job's work and wait until its process is gone. Harmless when it has ended: then it is kept."""
        if job.task is not None and not job.task.done():
            if job.state not in FINISHED and not job.task.cancelling():  # once: its process is ending by then
                job.task.cancel()
            await asyncio.wait([job.task])
        if job.state not in FINISHED:  # cancelled before its first step
            job.finish("cancelled", ("cancelled", "It was cancelled on request."))
            self._lab.release(job.ticket)

    async def save_unsaved(self) -> None:
        """Keep how jobs ended where that could not be stored, as far as the store can be written by now."""
        for job in [other for other in self._jobs.values() if other.state in FINISHED and not other.is_stored]:
            await self._keep(job)
            if not job.is_stored:
                return

    async def close(self) -> None:
        """End every job; whoever waits for one is told."""
        self._closing = True
        await asyncio.gather(*(self.cancel(job) for job in self._jobs.values()))

    def _begin(self, job: Job) -> None:
        """Tell whoever watches, here or by the store at another service."""
        job.notify()
        job.beginning = asyncio.create_task(self._keep(job))

    async def _run(self, job: Job, work: Work) -> None:
        try:
            kept = await work(job.ticket, job.report)
            job.finish("succeeded", kept=kept)
        except asyncio.CancelledError:
            reason = "The service was ended." if self._closing else "It was cancelled on request."
            job.finish("failed" if self._closing else "cancelled", ("cancelled", reason))
        except CrosspointError as error:
            job.finish("failed", (error.code, str(error)))
        except InvalidRequest as error:
            job.finish("failed", ("invalid-request", str(error)))
        except Exception:
            log.exception("A job failed.")
            job.finish("failed", ("fault", "crosspoint itself failed; its log says where."))
        finally:
            self._lab.release(job.ticket)
        if job.beginning is not None:
            await job.beginning
        await self._keep(job)

    async def _keep(self, job: Job) -> None:
        document = job.document()
        try:
            await self._store.keep_job({**document, OWNER: this_owner(self._store.machine_key)})
        except StoreError as error:
            log.warning("%s", error)
            return
        if document["state"] in FINISHED:
            job.is_stored = True
            for old in [other for other in self._jobs.values() if other.is_stored][:-REMEMBERED_RESULTS]:
                old.let_go()

    def _told(self, stored: dict[str, Any]) -> dict[str, Any]:
        """A stored job that never ended was cut off with the process that ran it, unless that runs on."""
        document = {name: value for name, value in stored.items() if name != OWNER}
        if document.get("state") in FINISHED or may_run(stored, self._store.machine_key):
            return document
        return {**document, "state": "failed", "code": "ended", "reason": "The service was ended while this job ran."}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
