"""How a machine came to be as it is: each other identity that was seen of it, when, and what had changed."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from datetime import UTC, datetime
from typing import Any

from app.store.statements import forget_oldest
from probes.fingerprint import Identity, hash_identity
from probes.identity_changes import explain_changes

# Of one machine: a driver each month is a dozen a year; limits that follow the time of day are what this bounds.
KEPT_STATES = 500
# Of all that share the store: every container that was started may have been one.
KEPT_STATES_IN_ALL = 5_000

_FORGET = (
    "DELETE FROM history WHERE machine = ?1 AND id <= "
    "(SELECT id FROM history WHERE machine = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)"
)


def keep_state(connection: sqlite3.Connection, machine: str, identity: Identity) -> None:
    """One row more where the identity is not that of the machine's last row; two processes may try at once."""
    fingerprint = hash_identity(identity)
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        last = _read_last(connection, machine)
        if last is not None and last[0] == fingerprint:
            return
        changes = explain_changes(last[1], identity) if last is not None else ()
        connection.execute(
            "INSERT INTO history (machine, seen_at, fingerprint, identity, changes) VALUES (?, ?, ?, ?, ?)",
            (machine, time.time(), fingerprint, json.dumps(identity), json.dumps(changes)),
        )
        connection.execute(_FORGET, (machine, KEPT_STATES))
        connection.execute(*forget_oldest("history", "id", KEPT_STATES_IN_ALL))


def read_history(connection: sqlite3.Connection, machine: str, limit: int) -> list[dict[str, Any]]:
    """Newest first: `seen_at`, `fingerprint` and `changes`, which are none for the first state that was seen."""
    statement = "SELECT seen_at, fingerprint, changes FROM history WHERE machine = ? ORDER BY id DESC LIMIT ?"
    found = []
    for seen_at, fingerprint, changes in connection.execute(statement, (machine, limit)):
        with contextlib.suppress(ValueError, TypeError, OverflowError, OSError):
            at = datetime.fromtimestamp(seen_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            found.append({"seen_at": at, "fingerprint": str(fingerprint), "changes": [*map(str, json.loads(changes))]})
    return found


def read_identity(connection: sqlite3.Connection, machine: str) -> Identity | None:
    """What was seen of it last."""
    last = _read_last(connection, machine)
    return None if last is None else last[1]


def _read_last(connection: sqlite3.Connection, machine: str) -> tuple[str, Identity] | None:
    statement = "SELECT fingerprint, identity FROM history WHERE machine = ? ORDER BY id DESC LIMIT 1"
    row = connection.execute(statement, (machine,)).fetchone()
    with contextlib.suppress(ValueError, TypeError):
        identity = json.loads(row[1]) if row is not None else None
        return (str(row[0]), identity) if isinstance(identity, dict) else None
    return None
