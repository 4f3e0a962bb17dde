"""How quick the cores were when measurements ran: the last spells, of each the quickest reading."""

from __future__ import annotations

import sqlite3
import time
from collections import defaultdict
from collections.abc import Mapping

from app.store.statements import forget_oldest

# A spell is that long, from its first measurement on, and each later one has its own.
SPELL_SECONDS = 1800.0
# Of a machine in one state and a number of threads: what is said of this machine now rests on all of them.
KEPT_SPELLS = 3
KEPT_PACES = 1000  # of all machines, states and numbers of threads together

_NEWEST = "SELECT id, begun_at, seconds FROM paces WHERE fingerprint = ? AND threads = ? ORDER BY id DESC"
_FORGET_EARLIER = (
    "DELETE FROM paces WHERE fingerprint = ?1 AND threads = ?2 AND id NOT IN "
    "(SELECT id FROM paces WHERE fingerprint = ?1 AND threads = ?2 ORDER BY id DESC LIMIT ?3)"
)


def keep_paces(connection: sqlite3.Connection, fingerprint: str, paces: Mapping[int, float]) -> None:
    """paces: by threads, seconds that fixed work took when it was quickest in a measurement that ended just now."""
    now = time.time()
    with connection:
        for threads, seconds in paces.items():
            newest = connection.execute(f"{_NEWEST} LIMIT 1", (fingerprint, threads)).fetchone()
            # One that was begun in the future, by a clock that has been set since, is of no known age.
            if newest is not None and 0 <= now - newest[1] < SPELL_SECONDS:
                connection.execute("UPDATE paces SET seconds = min(seconds, ?) WHERE id = ?", (seconds, newest[0]))
            else:
                insert = "INSERT INTO paces (fingerprint, threads, begun_at, seconds) VALUES (?, ?, ?, ?)"
                connection.execute(insert, (fingerprint, threads, now, seconds))
                connection.execute(_FORGET_EARLIER, (fingerprint, threads, KEPT_SPELLS))
        connection.execute(*forget_oldest("paces", "id", KEPT_PACES))


def read_paces(connection: sqlite3.Connection, fingerprint: str) -> dict[int, list[float]]:
    """By threads, the quickest reading of each of the last spells, KEPT_SPELLS at most; the newest first."""
    statement = "SELECT threads, seconds FROM paces WHERE fingerprint = ? ORDER BY id DESC"
    found: defaultdict[int, list[float]] = defaultdict(list)
    for threads, seconds in connection.execute(statement, (fingerprint,)):
        found[threads].append(seconds)
    return dict(found)
