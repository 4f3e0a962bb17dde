"""Jobs that somebody may still ask about, the last ones of them with what they gave."""

from __future__ import annotations

import time
from typing import Any

from app.store.statements import Statement, dump, forget_oldest

# A calibration's result is a megabyte, and kept as a profile as well.
KEPT_JOBS, KEPT_CALIBRATION_RESULTS = 500, 10

OWNER = "owner"  # in the store alone: the machine and the process that a job belongs to, as several share a store

# Of one machine, or of before that was told, without their results; one that is no JSON has no document. The newest
# first by their rows: a clock may be set back.
LIST_JOBS = (
    "SELECT CASE WHEN json_valid(document) THEN json_remove(document, '$.result') END "
    "FROM jobs WHERE kind = ?1 AND "
    f"CASE WHEN json_valid(document) THEN coalesce(json_extract(document, '$.{OWNER}.machine'), ?2) = ?2 END "
    "ORDER BY rowid DESC LIMIT ?3"
)
_KEEP = "INSERT INTO jobs VALUES (?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET document = excluded.document"
_FORGET_RESULTS = (
    "UPDATE jobs SET document = json_set(document, '$.result', NULL) WHERE kind = ?1 "
    "AND id NOT IN (SELECT id FROM jobs WHERE kind = ?1 ORDER BY rowid DESC LIMIT ?2) "
    "AND CASE WHEN json_valid(document) THEN json_type(document, '$.result') END = 'object'"
)


def keep_job(job: dict[str, Any]) -> list[Statement]:
    """Statements that keep a job's document, which has an `id` and a `kind`."""
    kept: list[Statement] = [(_KEEP, (job["id"], job["kind"], time.time(), dump(job)))]
    if job["kind"] == "calibration" and job.get("result") is not None:
        kept.append((_FORGET_RESULTS, (job["kind"], KEPT_CALIBRATION_RESULTS)))
    return [*kept, forget_oldest("jobs", "rowid", KEPT_JOBS)]
