"""How the machine came to be as it is: each other identity that was seen, when, and what had changed."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from datetime import UTC, datetime
from typing import Any

from probes.fingerprint import Identity, hash_identity
from probes.identity_changes import explain_changes

# A driver each month is a dozen a year; limits that follow the time of day are what this bounds.
KEPT_STATES = 500


def keep_state(connection: sqlite3.Connection, identity: Identity) -> None:
    """One row more where the identity is not that of the last row; two processes may try at once."""
    fingerprint = hash_identity(identity)
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        last = _read_last(connection)
        if last is not None and last[0] == fingerprint:
            return
        changes = explain_changes(last[1], identity) if last is not None else ()
        connection.execute(
            "INSERT INTO history (seen_at, fingerprint, identity, changes) VALUES (?, ?, ?, ?)",
            (time.time(), fingerprint, json.dumps(identity), json.dumps(changes)),
        )
        connection.execute("DELETE FROM history WHERE id <= (SELECT max(id) FROM history) - ?", (KEPT_STATES,))


def read_history(connection: sqlite3.Connection, limit: int) -> list[dict[str, Any]]:
    """Newest first: `seen_at`, `fingerprint` and `changes`, which are none for the first state that was seen."""
    statement = "SELECT seen_at, fingerprint, changes FROM history ORDER BY id DESC LIMIT ?"
    found = []
    for seen_at, fingerprint, changes in connection.execute(statement, (limit,)):
        with contextlib.suppress(ValueError, TypeError, OverflowError, OSError):
            at = datetime.fromtimestamp(seen_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            found.append({"seen_at": at, "fingerprint": str(fingerprint), "changes": [*map(str, json.loads(changes))]})
    return found


def read_identity(connection: sqlite3.Connection) -> Identity | None:
    """What was seen last."""
    last = _read_last(connection)
    return None if last is None else last[1]


def _read_last(connection: sqlite3.Connection) -> tuple[str, Identity] | None:
    row = connection.execute("SELECT fingerprint, identity FROM history ORDER BY id DESC LIMIT 1").fetchone()
    with contextlib.suppress(ValueError, TypeError):
        identity = json.loads(row[1]) if row is not None else None
        return (str(row[0]), identity) if isinstance(identity, dict) else None
    return None
