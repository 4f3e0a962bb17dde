"""One SQLite file, opened whatever state it is in: new, old, damaged, read-only, or on a folder that is not there."""

from __future__ import annotations

import contextlib
import errno
import logging
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from app.settings import HOMELESS
from app.store.journal import journal_mode
from app.store.machine import Machine, claim

T = TypeVar("T")
log = logging.getLogger(__name__)

# How long another process (a command beside the service) may hold the file; a write takes milliseconds.
BUSY_SECONDS = 5.0
RETRY_SECONDS = 0.01
# What keeps a write from being done until somebody makes room, or mounts the disk so that it can be written.
_UNWRITABLE = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)

# One entry a schema version, in order; an entry that was released is never edited.
MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE traces (
        model_key TEXT NOT NULL, mode TEXT NOT NULL, optimizer TEXT NOT NULL, torch_version TEXT NOT NULL,
        created_at REAL NOT NULL, document TEXT NOT NULL,
        PRIMARY KEY (model_key, mode, optimizer, torch_version)
    );
    CREATE TABLE profiles (
        id INTEGER PRIMARY KEY, name TEXT NOT NULL, fingerprint TEXT NOT NULL, created_at REAL NOT NULL,
        document TEXT NOT NULL
    );
    CREATE INDEX profiles_by_fingerprint ON profiles (fingerprint, id);
    CREATE INDEX profiles_by_name ON profiles (name, id);
    CREATE TABLE measurements (
        id INTEGER PRIMARY KEY, fingerprint TEXT NOT NULL, workload_key TEXT NOT NULL, created_at REAL NOT NULL,
        document TEXT NOT NULL
    );
    CREATE INDEX measurements_by_workload ON measurements (fingerprint, workload_key, id);
    CREATE TABLE jobs (
        id TEXT PRIMARY KEY, kind TEXT NOT NULL, created_at REAL NOT NULL, document TEXT NOT NULL
    );
    CREATE INDEX jobs_by_kind ON jobs (kind, created_at);
    CREATE TABLE surveys (
        fingerprint TEXT PRIMARY KEY, first_seen REAL NOT NULL, last_seen REAL NOT NULL, document TEXT NOT NULL
    );
    """,
    """
    CREATE TABLE history (
        id INTEGER PRIMARY KEY, seen_at REAL NOT NULL, fingerprint TEXT NOT NULL, identity TEXT NOT NULL,
        changes TEXT NOT NULL
    );
    """,
    """
    CREATE TABLE lessons (
        id INTEGER PRIMARY KEY AUTOINCREMENT, fingerprint TEXT NOT NULL, created_at REAL NOT NULL,
        workload_key TEXT NOT NULL, model_key TEXT NOT NULL, mode TEXT NOT NULL, optimizer TEXT NOT NULL,
        torch_version TEXT NOT NULL, log_every INTEGER, plan TEXT NOT NULL, data TEXT NOT NULL,
        batch_size INTEGER NOT NULL, seconds REAL NOT NULL, signature TEXT NOT NULL, predicted REAL,
        predicted_by TEXT NOT NULL, UNIQUE (fingerprint, workload_key, plan, data, batch_size)
    );
    """,
    # What was calibrated here, alone, where `document` also holds the calibrations before it. NULL: from elsewhere.
    "ALTER TABLE profiles ADD COLUMN calibration TEXT",
    # Whose past it is (app.store.machine). Empty: from before that was told.
    """
    ALTER TABLE surveys RENAME TO surveys_before;
    CREATE TABLE surveys (
        machine TEXT NOT NULL, fingerprint TEXT NOT NULL, first_seen REAL NOT NULL, last_seen REAL NOT NULL,
        document TEXT NOT NULL, PRIMARY KEY (machine, fingerprint)
    );
    INSERT INTO surveys SELECT '', fingerprint, first_seen, last_seen, document FROM surveys_before;
    DROP TABLE surveys_before;
    ALTER TABLE history ADD COLUMN machine TEXT NOT NULL DEFAULT '';
    """,
    # How it was measured (probes.measurement.METHOD), which was counted from here on.
    "ALTER TABLE lessons ADD COLUMN method INTEGER NOT NULL DEFAULT 1",
    # On which CPU a trace was made, which decides about kernels: machines that share a store keep one each.
    """
    ALTER TABLE traces RENAME TO traces_before;
    CREATE TABLE traces (
        model_key TEXT NOT NULL, mode TEXT NOT NULL, optimizer TEXT NOT NULL, torch_version TEXT NOT NULL,
        cpu TEXT NOT NULL, created_at REAL NOT NULL, document TEXT NOT NULL,
        PRIMARY KEY (model_key, mode, optimizer, torch_version, cpu)
    );
    INSERT INTO traces SELECT model_key, mode, optimizer, torch_version,
        CASE WHEN json_valid(document) THEN coalesce(json_extract(document, '$.cpu'), '') ELSE '' END,
        created_at, document FROM traces_before;
    DROP TABLE traces_before;
    """,
    # How quick the cores were when measurements ran (app.store.paces).
    """
    CREATE TABLE paces (
        id INTEGER PRIMARY KEY AUTOINCREMENT, fingerprint TEXT NOT NULL, threads INTEGER NOT NULL,
        begun_at REAL NOT NULL, seconds REAL NOT NULL
    );
    CREATE INDEX paces_by_threads ON paces (fingerprint, threads, id);
    """,
)


class Database:
    """A connection, and what is wrong with it. For one thread.

    machine: this one, whose past is told. trouble: None, or a sentence's end that says why what is written now will not
    be there after the next start. in_memory: what was written before cannot be read either. failed: None, or why what
    was to be written last was not; the next one may be. lost: None, or a sentence that says what became of the file
    that held what was written before. losses: how often that came about.
    """

    def __init__(self, path: Path, machine: Machine) -> None:
        self._path = path
        self._machine = machine
        self.trouble: str | None = None
        self.failed: str | None = None
        self.lost: str | None = None
        self.losses = 0
        self._away: tuple[tuple[int, int] | None, str | None] | None = None  # lost first, `lost` before that
        self.in_memory = False
        self.connection = self._open()
        self._file = _identify(path)

    def close(self) -> None:
        self.connection.close()

    @property
    def is_gone(self) -> bool:
        """The file that is open has no name any more, or another has it: what is written to it nobody finds again."""
        return self.trouble is None and _identify(self._path) != self._file

    def reopen(self) -> None:
        """The file of this name, which is another than was open, or a new one."""
        self._away = self._away or (self._file, self.lost)
        self._note_loss(f"The store's file was removed or replaced at {_now()}; what was in it is not used any more.")
        # Before anything is closed or made: what is made anew may get the number of what was removed.
        self._take_back_loss(_identify(self._path))
        self.connection.close()
        self.connection = self._open()
        self._file = _identify(self._path)

    def use(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What `work` gives; where it changes anything, nothing is wrong with writing any more."""
        before = self.connection.total_changes
        found = work(self.connection)
        if self.connection.total_changes != before:
            self.failed = None
        return found

    def note_failure(self, error: sqlite3.OperationalError) -> None:
        """Of a write. That another process held the file passes by itself, and is none."""
        if _code_of(error) in _UNWRITABLE:
            self.failed = f"the store cannot be written ({error})"

    def try_again(self) -> bool:
        """Where nothing could be saved: from now on it is, if it can be. What was kept in memory alone is let go. True
        where another file, or another state of it, is open by now."""
        before = self.connection
        if self.trouble is not None:
            self._open_again()
        elif self.failed is not None:
            self._write_again()
        return self.connection is not before

    def _open_again(self) -> None:
        found = _identify(self._path)
        try:
            _make_folder(self._path.parent)
            connection = _connect(self._path, self._machine)
        except (sqlite3.DatabaseError, OSError):
            return
        self.connection.close()
        self.connection, self.trouble, self.failed, self.in_memory = connection, None, None, False
        self._take_back_loss(found)
        self._file = _identify(self._path)
        log.warning("The store can be written again.")

    def _write_again(self) -> None:
        try:
            _try_to_write(self.connection)
        except sqlite3.OperationalError as error:
            self.note_failure(error)
            return
        except sqlite3.DatabaseError:  # what the failed write left is no database
            self.replace_damaged()
            return
        self.failed = None
        log.warning("The store can be written again.")

    def replace_damaged(self) -> None:
        """Move the damaged file that is open aside and begin a new one."""
        self.connection.close()
        self._move_aside(self._file)
        self.connection = self._open()
        self._file = _identify(self._path)

    def _open(self) -> sqlite3.Connection:
        self.trouble, self.failed, self.in_memory = None, None, False
        found = _identify(self._path)
        try:
            _make_folder(self._path.parent)
            return _connect_in_turn(self._path, self._machine)
        except sqlite3.OperationalError as error:
            return self._open_without_writing(f"the store cannot be written ({error})")
        except sqlite3.DatabaseError:
            self._move_aside(found)
            return self._open_new()
        except OSError as error:
            return self._open_without_writing(f"the data folder cannot be used ({error.strerror})")

    def _open_new(self) -> sqlite3.Connection:
        try:
            return _connect(self._path, self._machine)
        except sqlite3.DatabaseError as error:
            return self._open_without_writing(f"the store cannot be made anew ({error})")

    def _open_without_writing(self, trouble: str) -> sqlite3.Connection:
        """The file read-only where that works, else a store in memory."""
        self.trouble = trouble
        log.warning("Nothing is saved: %s.", trouble)
        # `immutable` looks at the file alone: what was written last stands in its log until somebody closes it. But it
        # needs no lock, and no file beside it, where neither can be had (sqlite.org/wal.html, "Read-Only Databases").
        for way in ("mode=ro", "mode=ro&immutable=1"):
            try:
                connection = _open_file(f"{self._path.absolute().as_uri()}?{way}")
            except sqlite3.DatabaseError:
                continue
            with contextlib.suppress(sqlite3.DatabaseError):
                if _version(connection) == len(MIGRATIONS):
                    return connection
            connection.close()
        connection = _open_file(":memory:")
        _migrate(connection)
        self.in_memory = True
        return connection

    def _move_aside(self, damaged: tuple[int, int] | None) -> None:
        """Keep the damaged file for whoever wants to look, under a name that says what it is. What has its name by now
        is another process's new one, where that met the damage at the same time, and stays."""
        if _identify(self._path) != damaged:
            self._note_loss(f"The store was damaged at {_now()}; another process has begun a new one.")
            return
        aside = self._path.with_name(f"{self._path.name}.damaged-{time.time_ns()}")
        try:
            self._path.rename(aside)
            self._note_loss(
                f"The store was damaged at {_now()}; what was in it lies beside the new one as {aside.name}."
            )
            for suffix in ("-wal", "-shm", "-journal"):
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
        except OSError as error:
            log.warning("The damaged store could not be moved aside (%s).", error.strerror)

    def _note_loss(self, sentence: str) -> None:
        self.lost = sentence
        self.losses += 1
        log.warning("%s", sentence)

    def _take_back_loss(self, found: tuple[int, int] | None) -> None:
        """Where the file that is to be used is the one that went first: a folder that was away for a while, say."""
        if self._away is not None and found is not None and found == self._away[0]:
            self.lost, self._away = self._away[1], None
            log.warning("The store's file is back.")


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _make_folder(folder: Path) -> None:
    """Raises OSError."""
    if folder == HOMELESS:
        raise OSError(errno.ENOENT, "no home folder of this user is known: set CROSSPOINT_DATA_DIR")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)


def _identify(path: Path) -> tuple[int, int] | None:
    """Which file has this name; None: none has. A file that is open keeps its number to itself."""
    try:
        facts = path.stat()
    except OSError:
        return None
    return facts.st_dev, facts.st_ino


def _connect_in_turn(path: Path, machine: Machine) -> sqlite3.Connection:
    """As `_connect`, and again while another process opens the file: changing to WAL needs it alone, and SQLite does
    not wait for that, whatever its timeout (sqlite.org/wal.html)."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return _connect(path, machine)
        except sqlite3.OperationalError as error:
            if not _is_busy(error) or time.monotonic() >= deadline:
                raise
        time.sleep(RETRY_SECONDS)


def _is_busy(error: sqlite3.OperationalError) -> bool:
    """Another connection is in the way."""
    return _code_of(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _code_of(error: sqlite3.OperationalError) -> int:
    """SQLite's result code, the low byte of an extended one; 0 where it says none."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _connect(path: Path, machine: Machine) -> sqlite3.Connection:
    """Raises sqlite3.DatabaseError; its subclass OperationalError when the file is sound but cannot be used."""
    connection = _open_file(path)
    try:
        _refuse_newer(connection)
        mode = journal_mode(path.parent)
        connection.execute(f"PRAGMA journal_mode = {mode}")
        if mode == "WAL":  # a power cut costs it the last writes; a journal it might cost the whole file
            connection.execute("PRAGMA synchronous = NORMAL")
        _migrate(connection)
        _try_to_write(connection)
        with connection:
            claim(connection, machine)
    except BaseException:
        connection.close()
        raise
    return connection


def _open_file(place: Path | str) -> sqlite3.Connection:
    """place: a path, or SQLite's URI. A byte that is no UTF-8 (a bit that flipped on the disk) is read as no letter of
    its text: sqlite3 would fail the whole statement, and so hide every row beside it. Raises sqlite3.DatabaseError."""
    connection = sqlite3.connect(place, timeout=BUSY_SECONDS, uri=isinstance(place, str))
    connection.text_factory = lambda text: text.decode(errors="replace")
    return connection


def _try_to_write(connection: sqlite3.Connection) -> None:
    """So that a read-only file or a full disk is known. Raises sqlite3.OperationalError."""
    with connection:
        connection.execute("PRAGMA user_version = " + str(len(MIGRATIONS)))


def _version(connection: sqlite3.Connection) -> int:
    with closing(connection.execute("PRAGMA user_version")) as rows:
        return int(rows.fetchone()[0])


def _refuse_newer(connection: sqlite3.Connection) -> None:
    if _version(connection) > len(MIGRATIONS):
        raise sqlite3.OperationalError("a newer crosspoint made it")


def _migrate(connection: sqlite3.Connection) -> None:
    """Bring the schema up to date, one version a transaction; two processes may try at once."""
    while (version := _version(connection)) < len(MIGRATIONS):
        connection.execute("BEGIN IMMEDIATE")
        try:
            if _version(connection) == version:
                for statement in filter(str.strip, MIGRATIONS[version].split(";")):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {version + 1}")
            connection.commit()
        except BaseException:
            connection.rollback()
            raise
