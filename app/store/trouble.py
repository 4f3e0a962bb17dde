"""Why the store cannot be used, as a sentence's end that says what to do."""

from __future__ import annotations

import errno
import sqlite3

_ROOM = "make room on the disk of the data folder"
_ELSEWHERE = "or set CROSSPOINT_DATA_DIR to another folder"
_OTHER_FOLDER = "set CROSSPOINT_DATA_DIR to a folder that crosspoint may write to"
_OTHER_PROCESS = "another process holds it, which passes"
_WAYS_ON = {
    sqlite3.SQLITE_FULL: _ROOM,
    sqlite3.SQLITE_READONLY: (
        f"let crosspoint write to its file and folder (permissions, or how its disk is mounted), {_ELSEWHERE}"
    ),
    # Of a quota that is used up as well; and of a full disk where a file beside the store's cannot be made.
    sqlite3.SQLITE_IOERR: f"look whether its disk is sound and has room, {_ELSEWHERE}",
    sqlite3.SQLITE_CANTOPEN: f"look whether its disk has room, let crosspoint write to the data folder, {_ELSEWHERE}",
    sqlite3.SQLITE_BUSY: _OTHER_PROCESS,
    sqlite3.SQLITE_LOCKED: _OTHER_PROCESS,
    sqlite3.SQLITE_CORRUPT: "move its file out of the data folder, so that a new one is begun",
    sqlite3.SQLITE_NOTADB: "move its file out of the data folder, so that a new one is begun",
}


class UnusableStore(sqlite3.OperationalError):
    """What lies in the store's place is sound, and none that this version can use: its words are such a sentence's
    end."""


def code_of(error: sqlite3.Error) -> int:
    """SQLite's result code, the low byte of an extended one; 0 where it says none."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def tell_trouble(error: sqlite3.Error | OSError, verb: str = "be used") -> str:
    """verb: what cannot be done with the store."""
    if isinstance(error, UnusableStore):
        return str(error)
    if isinstance(error, OSError):
        way = _ROOM if error.errno in (errno.ENOSPC, errno.EDQUOT) else _OTHER_FOLDER
        return f"the data folder cannot be used ({error.strerror}); {way}"
    told = f"the store cannot {verb} ({error})"
    way_on = _WAYS_ON.get(code_of(error))
    return f"{told}; {way_on}" if way_on is not None else told
