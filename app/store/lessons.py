"""What each workload took here, in a form that helps to estimate others: a row a plan, batch and way of feeding."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from app.store.statements import forget_oldest
from probes.measurement import METHOD
from probes.signature import Signature
from probes.workload.description import Plan

# A few hundred workloads in every plan of a small machine; the latest tell most of how the machine is now.
KEPT_LESSONS = 2000
KEPT_OF_ALL = 10_000  # of all machines and states that share the store

_FORGET_EARLIER = (
    "DELETE FROM lessons WHERE fingerprint = ?1 AND id NOT IN "
    "(SELECT id FROM lessons WHERE fingerprint = ?1 ORDER BY id DESC LIMIT ?2)"
)


@dataclass(frozen=True, slots=True)
class LessonRow:
    """A measured step. trace_key: by which the store finds the trace. predicted: seconds that the profile and the
    program named by predicted_by foretell; None: they foretell none."""

    workload_key: str
    trace_key: tuple[str, str, str, str]  # model, mode, optimizer, torch's version
    log_every: int | None
    plan: Plan
    data: str
    batch_size: int
    seconds: float
    signature: Signature
    predicted: float | None
    predicted_by: str
    number: int = 0  # in the store

    @property
    def mode(self) -> str:
        return self.trace_key[1]


COLUMNS = (
    "workload_key, model_key, mode, optimizer, torch_version, log_every, plan, data, batch_size, seconds, signature, "
    "predicted, predicted_by"
)


def keep_lessons(connection: sqlite3.Connection, fingerprint: str, rows: Sequence[LessonRow]) -> None:
    """A later measurement takes the place of an earlier one. All were measured as this program does."""
    insert = (
        f"INSERT OR REPLACE INTO lessons (fingerprint, created_at, method, {COLUMNS}) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    )
    with connection:
        connection.executemany(insert, [(fingerprint, time.time(), METHOD, *_values(row)) for row in rows])
        connection.execute(_FORGET_EARLIER, (fingerprint, KEPT_LESSONS))
        connection.execute(*forget_oldest("lessons", "id", KEPT_OF_ALL))


def read_stamp(connection: sqlite3.Connection, fingerprint: str) -> tuple[object, ...]:
    """Another one when there is anything new."""
    statement = "SELECT count(*), max(id) FROM lessons WHERE fingerprint = ?"
    return tuple(connection.execute(statement, (fingerprint,)).fetchone())


def read_lessons(connection: sqlite3.Connection, fingerprint: str) -> list[LessonRow]:
    """Of this machine as it is now, as far as they can be read and were measured as this program does; signatures that
    are equal are one object."""
    signatures: dict[str, Signature] = {}
    found = []
    statement = f"SELECT id, {COLUMNS} FROM lessons WHERE fingerprint = ? AND method = ? ORDER BY id DESC"
    for row in connection.execute(statement, (fingerprint, METHOD)):
        with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):
            found.append(_read(row, signatures))
    return found


def note_predictions(connection: sqlite3.Connection, rows: Iterable[LessonRow]) -> None:
    """What today's profile foretells of rows that are kept."""
    with connection:
        connection.executemany(
            "UPDATE lessons SET predicted = ?, predicted_by = ? WHERE id = ?",
            [(row.predicted, row.predicted_by, row.number) for row in rows],
        )


def _values(row: LessonRow) -> tuple[object, ...]:
    plan = json.dumps(row.plan.to_json(), separators=(",", ":"))
    signature = json.dumps(row.signature.to_json(), separators=(",", ":"))
    return (row.workload_key, *row.trace_key, row.log_every, plan, row.data, row.batch_size, row.seconds, signature,
            row.predicted, row.predicted_by)  # fmt: skip


def _read(row: tuple[object, ...], signatures: dict[str, Signature]) -> LessonRow:
    """Raises KeyError, TypeError, ValueError or AttributeError."""
    number, key, *rest = row
    trace_key, (log_every, plan, data, batch, seconds, text, predicted, predicted_by) = rest[:4], rest[4:]
    if not (isinstance(seconds, float) and seconds > 0 and isinstance(batch, int) and isinstance(number, int)):
        raise ValueError("no time of a step")
    if not (log_every is None or isinstance(log_every, int)) or not (predicted is None or isinstance(predicted, float)):
        raise ValueError("no such lesson")
    model, mode, optimizer, version = map(str, trace_key)
    if str(text) not in signatures:
        signatures[str(text)] = Signature.from_json(json.loads(str(text)))
    return LessonRow(
        str(key),
        (model, mode, optimizer, version),
        log_every,
        Plan.from_json(json.loads(str(plan))),
        str(data),
        batch,
        seconds,
        signatures[str(text)],
        predicted,
        str(predicted_by),
        number,
    )
