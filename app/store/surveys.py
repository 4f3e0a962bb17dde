"""Surveys: one of each state that a machine was seen in, by which the store knows what is its own past."""

from __future__ import annotations

import time

from app.store.statements import Statement, dump, forget_oldest
from probes.hardware import Survey

# Of one machine, and of all that share the store. A survey is some ten kilobytes.
KEPT_SURVEYS, KEPT_SURVEYS_IN_ALL = 100, 1_000

_KEEP = (
    "INSERT INTO surveys (machine, fingerprint, first_seen, last_seen, document) VALUES (?1, ?2, ?3, ?3, ?4) "
    "ON CONFLICT (machine, fingerprint) DO UPDATE SET last_seen = excluded.last_seen, document = excluded.document"
)
_FORGET = (
    "DELETE FROM surveys WHERE machine = ?1 AND fingerprint NOT IN "
    "(SELECT fingerprint FROM surveys WHERE machine = ?1 ORDER BY last_seen DESC LIMIT ?2)"
)


def keep_survey(machine: str, survey: Survey) -> list[Statement]:
    """Statements that keep it in the place of an earlier one of this state, and forget the oldest beyond the bounds."""
    return [
        (_KEEP, (machine, survey.fingerprint, time.time(), dump(survey.to_json()))),
        (_FORGET, (machine, KEPT_SURVEYS)),
        forget_oldest("surveys", "last_seen", KEPT_SURVEYS_IN_ALL),
    ]
