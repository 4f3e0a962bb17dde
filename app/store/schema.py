"""The store's tables, and how those of earlier versions become today's."""

from __future__ import annotations

import functools
import sqlite3
from contextlib import closing

from app.store.trouble import UnusableStore

NEWER = "a newer crosspoint made the store; update this one, or set CROSSPOINT_DATA_DIR to another folder"
UNKNOWN = (
    "the store's file holds other tables than its version number says; move it out of the data folder, so that a new "
    "one is begun, or set CROSSPOINT_DATA_DIR to another folder"
)

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
    # The fixed work that they are of was another (probes.profile.METHOD 3).
    "DELETE FROM paces",
)

_TIMES = {
    "traces": "created_at",
    "profiles": "created_at",
    "measurements": "created_at",
    "jobs": "created_at",
    "surveys": "last_seen",
    "history": "seen_at",
    "lessons": "created_at",
    "paces": "begun_at",
}
_WRITTEN_LAST = " UNION ALL ".join(f"SELECT max({time}) AS at FROM {table}" for table, time in _TIMES.items())


def is_todays(connection: sqlite3.Connection) -> bool:
    """Raises sqlite3.DatabaseError."""
    return read_version(connection) == len(MIGRATIONS) and _read_columns(connection) >= _todays_columns()


def refuse_newer(connection: sqlite3.Connection) -> None:
    """Raises UnusableStore, and sqlite3.DatabaseError."""
    if read_version(connection) > len(MIGRATIONS):
        raise UnusableStore(NEWER)


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the schema up to date, one version a transaction; two processes may try at once. Raises UnusableStore where
    the tables are none of ours, and sqlite3.DatabaseError."""
    try:
        while (version := read_version(connection)) < len(MIGRATIONS):
            _migrate_from(connection, version)
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", 0) != sqlite3.SQLITE_ERROR:  # a table or a column that is there, or none
            raise
        raise UnusableStore(UNKNOWN) from error
    if not is_todays(connection):
        refuse_newer(connection)  # another process may have been quicker
        raise UnusableStore(UNKNOWN)


def read_version(connection: sqlite3.Connection) -> int:
    with closing(connection.execute("PRAGMA user_version")) as rows:
        return int(rows.fetchone()[0])


def read_written_last(connection: sqlite3.Connection) -> float:
    """When the newest row was written, seconds since 1970; 0 where there is none, or nobody can tell."""
    try:
        with closing(connection.execute(f"SELECT max(at) FROM ({_WRITTEN_LAST})")) as rows:
            return float(rows.fetchone()[0] or 0.0)
    except (sqlite3.Error, TypeError, ValueError):
        return 0.0


def _migrate_from(connection: sqlite3.Connection, version: int) -> None:
    if version < 0:
        raise UnusableStore(UNKNOWN)
    connection.execute("BEGIN IMMEDIATE")
    try:
        if read_version(connection) == version:
            for statement in filter(str.strip, MIGRATIONS[version].split(";")):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {version + 1}")
        connection.commit()
    except BaseException:
        connection.rollback()
        raise


def _read_columns(connection: sqlite3.Connection) -> frozenset[tuple[str, str]]:
    """Each with its table."""
    statement = "SELECT m.name, c.name FROM sqlite_master AS m, pragma_table_info(m.name) AS c WHERE m.type = 'table'"
    with closing(connection.execute(statement)) as rows:
        return frozenset(rows.fetchall())


@functools.cache
def _todays_columns() -> frozenset[tuple[str, str]]:
    with closing(sqlite3.connect(":memory:")) as connection:
        for version in range(len(MIGRATIONS)):
            _migrate_from(connection, version)
        return _read_columns(connection)
