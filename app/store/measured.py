"""Measurements: which are kept, and which of them are read."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from collections.abc import Sequence

from app.store.latest import latest_of
from app.store.statements import dump, forget_oldest
from probes.measurement import METHOD, Measurement

# Of all workloads together: a thousand of them under a few plans, at a few batch sizes each.
KEPT_MEASUREMENTS = 20_000
# The newest of one workload: each is parsed for an answer. Beyond these nothing counts, and nothing is kept.
KEPT_EACH = 1_000

Key = tuple[str, str]  # the machine's fingerprint, the workload's key
_INSERT = "INSERT INTO measurements (fingerprint, workload_key, created_at, document) VALUES (?, ?, ?, ?)"
_NEWEST = "SELECT id, document FROM measurements WHERE fingerprint = ? AND workload_key = ? ORDER BY id DESC LIMIT ?"
_FORGET_OLD = (
    "DELETE FROM measurements WHERE fingerprint = ?1 AND workload_key = ?2 AND id <= (SELECT id FROM measurements "
    "WHERE fingerprint = ?1 AND workload_key = ?2 ORDER BY id DESC LIMIT 1 OFFSET ?3)"
)


def read_measurements(connection: sqlite3.Connection, key: Key, most: int | None = None) -> dict[int, Measurement]:
    """Of one workload the newest, KEPT_EACH where it is not said how many; in the order in which they were taken, by
    their place in the store, as far as they can be read and were measured as this program does."""
    found = {}
    for number, text in reversed(connection.execute(_NEWEST, (*key, most or KEPT_EACH)).fetchall()):
        with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):
            row = Measurement.from_json(json.loads(text))
            if row.method == METHOD:
                found[int(number)] = row
    return found


def keep_measurements(connection: sqlite3.Connection, key: Key, measurements: Sequence[Measurement]) -> None:
    """All or none. What does not count any more is forgotten: a workload that is measured again and again takes no more
    room, and no other's."""
    now = time.time()
    with connection:
        connection.executemany(_INSERT, [(*key, now, dump(item.to_json())) for item in measurements])
        rows = read_measurements(connection, key, KEPT_EACH + len(measurements))
        counting = {id(row) for row in latest_of(rows.values())}
        over = [(number,) for number, row in rows.items() if id(row) not in counting]
        connection.executemany("DELETE FROM measurements WHERE id = ?", over)
        connection.execute(_FORGET_OLD, (*key, KEPT_EACH))
        connection.execute(*forget_oldest("measurements", "id", KEPT_MEASUREMENTS))
