"""What is kept: traces by content, profiles with their history, measurements, jobs and surveys.

Every statement runs in one thread of its own, so that a slow disk never holds up the event loop. Documents are
the JSON of the dataclasses in `probes`; a document of another schema is passed over, as if it were not there.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from app.errors import StoreError
from app.store import history, jobs, lessons, measured, paces, profiles, surveys
from app.store.database import Database
from app.store.latest import latest_of
from app.store.lessons import LessonRow
from app.store.machine import Machine, read_machine
from app.store.statements import Parameters, Statement, dump, forget_oldest
from app.store.trouble import tell_trouble
from probes.fingerprint import Identity
from probes.hardware import Survey
from probes.measurement import Measurement
from probes.profile import Profile
from probes.reading import Root
from probes.trace import Trace
from probes.workload.description import Workload

T = TypeVar("T")

FILE_NAME = "crosspoint.sqlite3"
# How much history is kept. A trace is tens of kilobytes, the rest less.
KEPT_TRACES = 2_000
REMEMBERED_PROFILES = 4
READ = "read"  # what an error says was not done
_CALIBRATED = (
    "FROM profiles WHERE name = ?1 AND fingerprint = ?2 AND calibration IS NOT NULL AND id > "
    "(SELECT coalesce(max(id), 0) FROM profiles WHERE name = ?1 AND fingerprint = ?2 AND calibration IS NULL)"
)


class Store:
    """Opens its file with the first call. Reading what is not there gives None; writing raises StoreError where
    it cannot be kept, and the caller's answer says so.

    machine: whose past is kept and told; None: the one that this runs on.
    """

    def __init__(self, folder: Path, machine: Machine | None = None) -> None:
        self._path = folder / FILE_NAME
        self._machine = machine or read_machine(Root())
        self._database: Database | None = None
        self._profiles: dict[tuple[Any, ...], Profile | None] = {}
        self._parsing = asyncio.Lock()  # held by whoever parses a profile
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")

    async def open(self) -> None:
        """Open now, to learn early what is wrong; again, where nothing could be saved."""
        await self._run(lambda connection: None, READ)
        await self._in_thread(self._try_again)

    @property
    def machine_key(self) -> str:
        """Another one for another machine (app.store.machine)."""
        return self._machine.key

    @property
    def trouble(self) -> str | None:
        """Why nothing is saved, as a sentence's end; None: all is well, or the file was not opened yet."""
        return (self._database.trouble or self._database.failed) if self._database is not None else None

    @property
    def lasting_trouble(self) -> str | None:
        """Why nothing is saved until the file can be opened for writing, as a sentence's end: without what the last
        write alone met."""
        return self._database.trouble if self._database is not None else None

    @property
    def unreadable(self) -> str | None:
        """Why what was stored before cannot be read, as a sentence's end; None: it can be, or was not opened yet."""
        return self.trouble if self._database is not None and self._database.in_memory else None

    @property
    def lost(self) -> str | None:
        """What became of the file that held what was stored before, a sentence; None: it is the one that is used."""
        return self._database.lost if self._database is not None else None

    @property
    def losses(self) -> int:
        """How often that came about: with each another file is used, which knows nothing of what was stored before."""
        return self._database.losses if self._database is not None else 0

    async def close(self) -> None:
        await self._in_thread(self._close)
        self._thread.shutdown(wait=False)

    async def trace(self, workload: Workload, torch_version: str, cpu: str = "") -> Trace | None:
        """The trace of a workload of this content, made by this torch. cpu: see trace_of."""
        return await self.trace_of((workload.model.key, workload.mode, workload.stepped_by, torch_version), cpu)

    async def trace_of(self, key: tuple[str, str, str, str], cpu: str = "") -> Trace | None:
        """The trace of a model, a mode, an optimizer and torch's version. cpu: on which it was made, or on one that
        nobody could tell; empty: whichever, the newest."""
        statement = (
            "SELECT document FROM traces WHERE model_key = ?1 AND mode = ?2 AND optimizer = ?3 AND torch_version = ?4 "
            "AND (cpu IN (?5, '') OR ?5 = '') ORDER BY (?5 != '' AND cpu = ?5) DESC, rowid DESC LIMIT 1"
        )
        return _first(await self._select(statement, (*key, cpu), Trace.from_json))

    async def keep_trace(self, workload: Workload, torch_version: str, trace: Trace) -> None:
        """In the place of an earlier one that was made on the same CPU."""
        key = (workload.model.key, workload.mode, workload.stepped_by, torch_version, trace.cpu)
        await self._write(
            lambda: [
                (
                    "INSERT OR REPLACE INTO traces VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (*key, time.time(), dump(trace.to_json())),
                ),
                forget_oldest("traces", "rowid", KEPT_TRACES),
            ]
        )

    async def profile(self, fingerprint: str) -> Profile | None:
        """The latest profile of this machine as it is now that can be read."""
        statement = "SELECT id, created_at FROM profiles WHERE fingerprint = ? ORDER BY id DESC"
        return await self._first_readable(statement, fingerprint)

    async def named_profile(self, name: str, fingerprint: str = "") -> Profile | None:
        """The latest profile of this name that can be read; with this fingerprint where one has it."""
        return await self._first_readable(profiles.FIND_NAMED, _text(name), fingerprint)

    async def has_profile(self, name: str) -> bool:
        """Whether there is one of this name, one that cannot be read among them."""
        return bool(await self._rows("SELECT 1 FROM profiles WHERE name = ? LIMIT 1", (_text(name),)))

    async def profile_heads(self, fingerprint: str = "") -> list[dict[str, Any]]:
        """Of the profile of each name that `named_profile` gives, the 50 newest, newest first: what a list tells, with
        numbers of points and networks in their place."""
        return await self._run(lambda connection: profiles.read_heads(connection, fingerprint), READ)

    async def outdated_profile(self, fingerprint: str) -> Profile | None:
        """The latest profile of this machine as it was in a state before: another fingerprint that was seen here."""
        statement = (
            "SELECT id, created_at FROM profiles WHERE fingerprint != ? "
            "AND fingerprint IN (SELECT fingerprint FROM surveys WHERE machine = ?) ORDER BY id DESC"
        )
        return await self._first_readable(statement, fingerprint, self._machine.key)

    async def was_seen(self, fingerprint: str) -> bool:
        """Whether this machine was seen in the state that has this fingerprint."""
        statement = "SELECT 1 FROM surveys WHERE machine = ? AND fingerprint = ?"
        return bool(await self._rows(statement, (self._machine.key, fingerprint)))

    async def forget_profiles(self, name: str) -> None:
        """Forget every profile of this name."""
        await self._write(lambda: [("DELETE FROM profiles WHERE name = ?", (name,))], "removed")

    async def keep_profile(self, profile: Profile, calibration: Profile | None = None) -> None:
        """The profiles before it stay, within bounds (app.store.profiles). calibration: what was measured here now,
        where the profile holds earlier calibrations as well; None of a profile from elsewhere."""
        await self._write(lambda: profiles.keep_profile(profile, calibration))

    async def calibrations(self, name: str, fingerprint: str, limit: int) -> list[Profile]:
        """What was calibrated here under this name, newest first, since a profile from elsewhere took its place."""
        statement = f"SELECT calibration {_CALIBRATED} ORDER BY id DESC LIMIT ?3"
        return await self._select(statement, (name, fingerprint, limit), Profile.from_json)

    async def calibration_times(self, name: str, fingerprint: str, method: int | None = None) -> list[float]:
        """When those were kept, newest first; seconds since 1970. method: of those that measured so alone."""
        told = "CASE WHEN json_valid(calibration) THEN coalesce(json_extract(calibration, '$.method'), 0) END"
        so = f"(?3 IS NULL OR {told} = ?3)"
        statement = f"SELECT created_at {_CALIBRATED} AND {so} ORDER BY id DESC"
        return [float(at) for (at,) in await self._rows(statement, (name, fingerprint, method))]

    async def measurements(self, fingerprint: str, workload: Workload) -> list[Measurement]:
        """What this machine measured of this model, as far as it counts (latest_of); in the order in which it was."""
        key = (fingerprint, workload_key(workload))
        rows = await self._run(lambda connection: measured.read_measurements(connection, key), READ)
        return latest_of(rows.values())

    async def keep_measurements(
        self, fingerprint: str, workload: Workload, measurements: Sequence[Measurement]
    ) -> None:
        """What these take the place of is forgotten."""
        key = (fingerprint, workload_key(workload))
        await self._change(lambda connection: measured.keep_measurements(connection, key, measurements))

    async def paces(self, fingerprint: str) -> dict[int, list[float]]:
        """How quick the cores were in the last spells of measuring, by threads (app.store.paces)."""
        return await self._run(lambda connection: paces.read_paces(connection, fingerprint), READ)

    async def keep_paces(self, fingerprint: str, quickest: Mapping[int, float]) -> None:
        """quickest: seconds by threads, in a measurement that ended just now."""
        await self._change(lambda connection: paces.keep_paces(connection, fingerprint, quickest))

    async def keep_lessons(self, fingerprint: str, rows: Sequence[LessonRow]) -> None:
        """Keep what measurements teach of other workloads."""
        await self._run(lambda connection: lessons.keep_lessons(connection, fingerprint, rows))

    async def lessons_stamp(self, fingerprint: str) -> tuple[object, ...]:
        """Another one when there is a new lesson of this machine."""
        return await self._run(lambda connection: lessons.read_stamp(connection, fingerprint), READ)

    async def lessons(self, fingerprint: str) -> list[LessonRow]:
        """What was measured of this machine as it is now, newest first."""
        return await self._run(lambda connection: lessons.read_lessons(connection, fingerprint), READ)

    async def note_predictions(self, rows: Sequence[LessonRow]) -> None:
        """Keep what is foretold of lessons now."""
        await self._run(lambda connection: lessons.note_predictions(connection, rows))

    async def job(self, kind: str, name: str) -> dict[str, Any] | None:
        return _first(await self._select("SELECT document FROM jobs WHERE kind = ? AND id = ?", (kind, name), dict))

    async def jobs(self, kind: str, limit: int = 50) -> list[dict[str, Any]]:
        """This machine's jobs of a kind without their results, newest first."""
        return await self._select(jobs.LIST_JOBS, (kind, self._machine.key, limit), dict)

    async def keep_job(self, job: dict[str, Any]) -> None:
        """Keep a job's document, which has an `id` and a `kind`; a calibration's result for the last few of them."""
        await self._write(lambda: jobs.keep_job(job))

    async def keep_survey(self, survey: Survey) -> None:
        """One row for each state that the machine was seen in."""
        await self._write(lambda: surveys.keep_survey(self._machine.key, survey))

    async def keep_state(self, identity: Identity) -> None:
        """Keep what this machine is, where it is not what it was."""
        await self._change(lambda connection: history.keep_state(connection, self._machine.key, identity))

    async def history(self, limit: int = 100) -> list[dict[str, Any]]:
        """What this machine was, newest first, and what changed each time."""
        return await self._run(lambda connection: history.read_history(connection, self._machine.key, limit), READ)

    async def identity(self) -> Identity | None:
        """What this machine was when it was looked at last."""
        return await self._run(lambda connection: history.read_identity(connection, self._machine.key), READ)

    async def _first_readable(self, statement: str, *values: str) -> Profile | None:
        """Parsing one takes tens of milliseconds, so those parsed last are remembered by their row and its time:
        SQLite gives a row's number again when the last row was deleted."""
        for row in await self._rows(statement, values):
            if (profile := await self._remembered(row)) is not None:
                return profile
        return None

    async def _remembered(self, row: tuple[Any, ...]) -> Profile | None:
        """Of several who ask at once one parses it, and each is given the same one: what is fitted to it goes by its
        identity."""
        remembered = self._profiles  # the store's thread may put an empty one in its place at any time
        if row not in remembered:
            async with self._parsing:
                remembered = self._profiles
                if row not in remembered:
                    document = "SELECT document FROM profiles WHERE id = ? AND created_at = ?"
                    found = _first(await self._select(document, row, Profile.from_json))
                    remembered = self._profiles
                    remembered[row] = found
        profile = remembered[row] = remembered.pop(row)  # the last to be forgotten
        for oldest in [*remembered][:-REMEMBERED_PROFILES]:
            del remembered[oldest]
        return profile

    async def _select(self, statement: str, parameters: Parameters, read: Callable[[dict[str, Any]], T]) -> list[T]:
        """The documents that the statement finds, as far as they are of today's schema."""

        def work(connection: sqlite3.Connection) -> list[T]:
            found = []  # at once: while rows are read nobody else can write
            for (text,) in connection.execute(statement, parameters).fetchall():
                with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):
                    found.append(read(json.loads(text)))
            return found

        return await self._run(work, READ)

    async def _rows(self, statement: str, parameters: Parameters) -> list[tuple[Any, ...]]:
        return await self._run(lambda connection: connection.execute(statement, parameters).fetchall(), READ)

    async def _write(self, statements: Callable[[], list[Statement]], done: str = "saved") -> None:
        """All statements or none; they are made in the store's thread, for encoding takes time. Raises StoreError,
        which says that this was not `done`."""

        def work(connection: sqlite3.Connection) -> None:
            prepared = statements()
            with connection:
                for statement, parameters in prepared:
                    connection.execute(statement, parameters)

        await self._change(work, done)

    async def _change(self, work: Callable[[sqlite3.Connection], None], done: str = "saved") -> None:
        """Raises StoreError, also where it was done in memory alone."""
        await self._run(work, done)
        if self._database is not None and self._database.trouble:
            raise StoreError(f"This was not {done}: {self._database.trouble}.")

    async def _run(self, work: Callable[[sqlite3.Connection], T], done: str = "saved") -> T:
        return await self._in_thread(lambda: self._attempt(work, done))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        try:
            working = asyncio.get_running_loop().run_in_executor(self._thread, work)
        except RuntimeError:  # the thread has ended
            raise StoreError("The store is closed: crosspoint is shutting down.") from None
        return await working

    def _attempt(self, work: Callable[[sqlite3.Connection], T], done: str) -> T:
        """Run `work`; a file that turns out to be damaged is replaced, once. Where nothing could be saved, a write
        looks first whether it can be. Raises StoreError: this was not `done`."""
        database = self._opened()
        if done != READ and database.trouble:
            self._try_again()
        try:
            try:
                return database.use(work)
            except sqlite3.OperationalError as error:
                if database.is_gone:  # by now: SQLite writes nothing to a file that was moved
                    return self._opened().use(work)
                if done != READ:
                    database.note_failure(error)
                raise
            except sqlite3.DatabaseError:
                if database.trouble:  # read beside whoever writes it, it looks damaged and need not be
                    raise
                database.replace_damaged()
                self._profiles = {}
                return database.use(work)
        except sqlite3.Error as error:
            why = tell_trouble(error, "be used" if done == READ else "be written")
            if done != READ and database.trouble:  # SQLite's words of a file that was opened to be read alone say less
                why = database.trouble
            raise StoreError(f"This was not {done}: {why}.") from error

    def _opened(self) -> Database:
        if self._database is None:
            self._database = Database(self._path, self._machine)
        elif self._database.is_gone:
            self._database.reopen()
            self._profiles = {}
        return self._database

    def _try_again(self) -> None:
        if self._database is not None and self.trouble and self._database.try_again():
            self._profiles = {}

    def _close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None


def _text(name: str) -> str:
    """A command line's argument that is no UTF-8 holds what SQLite cannot look for; nothing here is called so."""
    return name.encode(errors="replace").decode()


def workload_key(workload: Workload) -> str:
    """Equal for workloads whose steps cost the same at a given batch size, plan and way of feeding."""
    identity = [workload.model.key, workload.mode, workload.stepped_by, workload.readings_every]
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:32]


def _first(found: Sequence[T]) -> T | None:
    return found[0] if found else None
