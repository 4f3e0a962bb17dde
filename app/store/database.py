"""One SQLite file, opened whatever state it is in: new, old, damaged, read-only, or on a folder that is not there."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import time
from contextlib import closing
from pathlib import Path

log = logging.getLogger(__name__)

# How long another process (a command beside the service) may hold the file; a write takes milliseconds.
BUSY_SECONDS = 5.0
RETRY_SECONDS = 0.01

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
)


class Database:
    """A connection, and what is wrong with it. For one thread.

    trouble: None, or a sentence that says why what is written now will not be there after the next start.
    in_memory: what was written before cannot be read either.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.trouble: str | None = None
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
        log.warning("The store's file was removed or replaced; what was in it is not there any more.")
        self.connection.close()
        self.connection = self._open()
        self._file = _identify(self._path)

    def try_again(self) -> None:
        """Where nothing could be saved: from now on it is, if it can be. What was kept in memory alone is let go."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            connection = _connect(self._path)
        except (sqlite3.DatabaseError, OSError):
            return
        self.connection.close()
        self.connection, self.trouble, self.in_memory = connection, None, False
        self._file = _identify(self._path)
        log.warning("The store can be written again.")

    def replace_damaged(self) -> None:
        """Move a damaged file aside and begin a new one."""
        self.connection.close()
        self._move_aside()
        self.connection = self._open()
        self._file = _identify(self._path)

    def _open(self) -> sqlite3.Connection:
        self.trouble, self.in_memory = None, False
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            return _connect_in_turn(self._path)
        except sqlite3.OperationalError as error:
            return self._open_without_writing(f"the store cannot be written ({error})")
        except sqlite3.DatabaseError:
            self._move_aside()
            return self._open_new()
        except OSError as error:
            return self._open_without_writing(f"the data folder cannot be used ({error.strerror})")

    def _open_new(self) -> sqlite3.Connection:
        try:
            return _connect(self._path)
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
                connection = sqlite3.connect(f"{self._path.absolute().as_uri()}?{way}", timeout=BUSY_SECONDS, uri=True)
            except sqlite3.DatabaseError:
                continue
            with contextlib.suppress(sqlite3.DatabaseError):
                if _version(connection) == len(MIGRATIONS):
                    return connection
            connection.close()
        connection = sqlite3.connect(":memory:")
        _migrate(connection)
        self.in_memory = True
        return connection

    def _move_aside(self) -> None:
        """Keep the damaged file for whoever wants to look, under a name that says what it is."""
        aside = self._path.with_name(f"{self._path.name}.damaged-{time.time_ns()}")
        log.warning("The store was damaged. It lies beside the new one as %s.", aside.name)
        try:
            self._path.rename(aside)
            for suffix in ("-wal", "-shm"):
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
        except OSError as error:
            log.warning("The damaged store could not be moved aside (%s).", error.strerror)


def _identify(path: Path) -> tuple[int, int] | None:
    """Which file has this name; None: none has. A file that is open keeps its number to itself."""
    try:
        facts = path.stat()
    except OSError:
        return None
    return facts.st_dev, facts.st_ino


def _connect_in_turn(path: Path) -> sqlite3.Connection:
    """As `_connect`, and again while another process opens the file: changing to WAL needs it alone, and SQLite does
    not wait for that, whatever its timeout (sqlite.org/wal.html)."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return _connect(path)
        except sqlite3.OperationalError as error:
            if not _is_busy(error) or time.monotonic() >= deadline:
                raise
        time.sleep(RETRY_SECONDS)


def _is_busy(error: sqlite3.OperationalError) -> bool:
    """Another connection is in the way; the low byte of an extended code is the code."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _connect(path: Path) -> sqlite3.Connection:
    """Raises sqlite3.DatabaseError; its subclass OperationalError when the file is sound but cannot be used."""
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS)
    try:
        _refuse_newer(connection)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        _migrate(connection)
        with connection:  # a write, so that a read-only file or a full disk is known from the start
            connection.execute("PRAGMA user_version = " + str(len(MIGRATIONS)))
    except BaseException:
        connection.close()
        raise
    return connection


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
