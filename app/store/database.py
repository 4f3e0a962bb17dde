"""One SQLite file, opened whatever state it is in: new, old, damaged, read-only, or on a folder that is not there.

It is written with a rollback journal, never with a write-ahead log. SQLite finds both by the file's name. A log is
there for as long as the file is open, and holds what was written last: where the file is moved away, or another is put
in its place, the log is left behind, and whoever opens what has the name by then plays it into that. A journal is there
for the milliseconds of a write, and none is begun for a file that was moved (sqlite.org/howtocorrupt.html, "Unlinking
or renaming a database file while in use").
"""

from __future__ import annotations

import contextlib
import errno
import logging
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from app.settings import HOMELESS
from app.store import schema
from app.store.machine import Machine, claim
from app.store.trouble import UnusableStore, code_of, tell_trouble

T = TypeVar("T")
FileId = tuple[int, int]
log = logging.getLogger(__name__)

# How long another process (a command beside the service) may hold the file; a write takes milliseconds.
BUSY_SECONDS = 5.0
RETRY_SECONDS = 0.01
# What keeps a write from being done until somebody makes room, or mounts the disk so that it can be written.
_UNWRITABLE = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)
_FOLDER = "a folder lies where the store's file has to be; move it elsewhere, or set CROSSPOINT_DATA_DIR to another one"
# What SQLite may keep beside a file, by its name.
_BESIDE = ("-journal", "-wal", "-shm")


@dataclass(frozen=True, slots=True)
class _Away:
    """The file that was lost first: which it was, when its newest row was written, and what was told before."""

    file: FileId | None
    written_last: float
    lost: str | None


class Database:
    """A connection, and what is wrong with it. For one thread.

    machine: this one, whose past is told. trouble: None, or a sentence's end that says why what is written now will not
    be there after the next start, and what to do. in_memory: what was written before cannot be read either. failed:
    None, or why what was to be written last was not; the next one may be. doubted: little could be written after that,
    and nobody has written more. lost: None, or a sentence that says what
    became of the file that held what was written before. losses: how often another file was used from then on.
    """

    def __init__(self, path: Path, machine: Machine) -> None:
        self._path = path
        self._machine = machine
        self.trouble: str | None = None
        self.failed: str | None = None
        self.doubted = False
        self.lost: str | None = None
        self.losses = 0
        self._away: _Away | None = None
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
        self._note_away()
        # Before anything is closed or made: what is made anew may get the number of what was removed.
        found, losses = _identify(self._path), self.losses
        self.connection.close()
        self.connection = self._open()
        self._file = _identify(self._path)
        if self.losses == losses:
            self._tell_file(found, is_other=True)
        else:  # what took its place was damaged
            self.lost = f"{_say_replaced()} {self.lost}"

    def use(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What `work` gives; where it changes anything, nothing is wrong with writing any more."""
        before = self.connection.total_changes
        found = work(self.connection)
        if self.connection.total_changes != before:
            if self.failed is not None or self.doubted:
                log.warning("The store can be written again.")
            self.failed, self.doubted = None, False
        return found

    def note_failure(self, error: sqlite3.OperationalError) -> None:
        """Of a write. SQLITE_BUSY: another program held the file for as long as is waited (BUSY_SECONDS)."""
        if code_of(error) in (*_UNWRITABLE, sqlite3.SQLITE_BUSY):
            self.failed = tell_trouble(error, "be written")

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
        is_other = not self.in_memory and found != self._file
        try:
            _make_folder(self._path.parent)
            connection = _connect(self._path, self._machine)
        except (sqlite3.DatabaseError, OSError):
            return
        if is_other:
            self._note_away()
        self.connection.close()
        self.connection, self.trouble, self.failed, self.in_memory = connection, None, None, False
        self._file = _identify(self._path)
        log.warning("The store can be written again.")
        self._tell_file(found, is_other=is_other)

    def _write_again(self) -> None:
        try:
            _try_to_write(self.connection)
        except sqlite3.OperationalError as error:
            self.note_failure(error)
            return
        except sqlite3.DatabaseError:  # what the failed write left is no database
            self.replace_damaged()
            return
        self.failed, self.doubted = None, True

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
            _keep_left_logs(self._path)
            return _connect_in_turn(self._path, self._machine)
        except (sqlite3.OperationalError, OSError) as error:
            return self._open_without_writing(error)
        except sqlite3.DatabaseError:
            self._move_aside(found)
            return self._open_new()

    def _open_new(self) -> sqlite3.Connection:
        try:
            return _connect(self._path, self._machine)
        except sqlite3.DatabaseError as error:
            return self._open_without_writing(error)

    def _open_without_writing(self, error: sqlite3.DatabaseError | OSError) -> sqlite3.Connection:
        """The file read-only where that works, else a store in memory."""
        connection = _open_to_read(self._path)
        self.in_memory = connection is None
        self.trouble = tell_trouble(error, "be used" if connection is None else "be written")
        log.warning("Nothing is saved: %s.", self.trouble)
        if connection is None:
            connection = _open_file(":memory:")
            schema.migrate(connection)
        return connection

    def _move_aside(self, damaged: FileId | None) -> None:
        """Keep the damaged file for whoever wants to look, with what lies beside it, under a name that says what it is.
        What has its name by now is another process's new one, where that met the damage at the same time, and stays."""
        if _identify(self._path) != damaged:
            self._note_loss(f"The store was damaged at {_now()}; another process has begun a new one.")
            return
        aside = _name_aside(self._path, "damaged")
        try:
            _rename_beside(self._path, aside)
            self._path.rename(aside)
            self._note_loss(
                f"The store was damaged at {_now()}; what was in it lies beside the new one as {aside.name}."
            )
        except OSError as error:
            log.warning("The damaged store could not be moved aside (%s).", error.strerror)

    def _note_loss(self, sentence: str) -> None:
        self.lost = sentence
        self.losses += 1
        log.warning("%s", sentence)

    def _note_away(self) -> None:
        """Before the file that is open is let go for another. It is not read while another process writes to the one
        that has its name by now: SQLite would take that one's journal for its own."""
        if self._away is None:
            last = 0.0 if _has_journal(self._path) else schema.read_written_last(self.connection)
            self._away = _Away(self._file, last, self.lost)

    def _tell_file(self, found: FileId | None, *, is_other: bool) -> None:
        """found: the file that was opened just now. It is the one that went first where it is that file, as of a folder
        that was away for a while, and holds what was written to it last: a number is given again, and an older state
        may be put back."""
        away = self._away
        is_first = away is not None and found is not None and found == away.file and not self.in_memory
        if away is not None and is_first and schema.read_written_last(self.connection) >= away.written_last:
            self.lost, self._away = away.lost, None
            self.losses += 1
            log.warning("The store's file is back; what was written meanwhile is not in it.")
        elif is_other:
            self._note_loss(_say_replaced())


def _say_replaced() -> str:
    return f"The store's file was removed or replaced at {_now()}; what was in it is not used any more."


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _make_folder(folder: Path) -> None:
    """Raises OSError."""
    if folder == HOMELESS:
        raise OSError(errno.ENOENT, "no home folder of this user is known")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)


def _identify(path: Path) -> FileId | None:
    """Which file has this name; None: none has. A file that is open keeps its number to itself."""
    try:
        facts = path.stat()
    except OSError:
        return None
    return facts.st_dev, facts.st_ino


def _keep_left_logs(path: Path) -> None:
    """What lies beside no file belongs to one that was moved away after a process was killed: SQLite would remove it
    with the first write to a new file. Looked for in this order, as whoever makes a new one makes the file first.
    Raises OSError."""
    left = any(path.with_name(path.name + suffix).exists() for suffix in _BESIDE)
    if left and not path.exists():
        aside = _name_aside(path, "left")
        _rename_beside(path, aside)
        log.warning("The store's file is not there; what was left beside it is kept, named %s-….", aside.name)


def _name_aside(path: Path, word: str) -> Path:
    return path.with_name(f"{path.name}.{word}-{time.time_ns()}")


def _rename_beside(path: Path, aside: Path) -> None:
    """What lies beside the file, so that it lies beside that name. Raises OSError."""
    for suffix in _BESIDE:
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))


def _connect_in_turn(path: Path, machine: Machine) -> sqlite3.Connection:
    """As `_connect`, and again while another process opens the file: leaving a write-ahead log needs it alone, and
    SQLite does not wait for that, whatever its timeout (sqlite.org/wal.html)."""
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
    return code_of(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _connect(path: Path, machine: Machine) -> sqlite3.Connection:
    """Raises sqlite3.DatabaseError; its subclass OperationalError when the file is sound but cannot be used."""
    if path.is_dir():
        raise UnusableStore(_FOLDER)
    connection = _open_file(path)
    try:
        schema.refuse_newer(connection)
        schema.migrate(connection)
        connection.execute("PRAGMA journal_mode = DELETE").close()  # earlier versions left it at a write-ahead log
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


def _open_to_read(path: Path) -> sqlite3.Connection | None:
    """None where it cannot be read."""
    # `immutable` looks at the file alone: what was written last may stand in the log that earlier versions left beside
    # it. But it needs no lock, and no file beside it, where neither can be had (sqlite.org/wal.html, "Read-Only
    # Databases"). A write that was cut off, which its journal would take back, is read half done.
    ways = ("mode=ro",) if _has_journal(path) else ("mode=ro", "mode=ro&immutable=1")
    for way in ways:
        try:
            connection = _open_file(f"{path.absolute().as_uri()}?{way}")
        except sqlite3.DatabaseError:
            continue
        with contextlib.suppress(sqlite3.DatabaseError):
            if schema.is_todays(connection):
                return connection
        connection.close()
    return None


def _has_journal(path: Path) -> bool:
    """Of a write that is being done, or was cut off: it is removed with the write's end."""
    try:
        return path.with_name(f"{path.name}-journal").stat().st_size > 0
    except OSError:
        return False


def _try_to_write(connection: sqlite3.Connection) -> None:
    """So that a read-only file or a full disk is known. Raises sqlite3.OperationalError."""
    with connection:
        connection.execute(f"PRAGMA user_version = {len(schema.MIGRATIONS)}")
