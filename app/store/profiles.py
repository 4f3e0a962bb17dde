"""Profiles: which are kept, and what a list tells of them."""

from __future__ import annotations

import json
import sqlite3
import time
from itertools import islice
from operator import itemgetter
from typing import Any

from app.store.statements import Statement, dump
from probes.profile import READABLE_VERSIONS, Profile

# A profile is about a megabyte, and 4 MB at most.
KEPT_PROFILES_EACH = 10  # of one name and fingerprint
KEPT_PROFILES = 100  # of the machines that share the store, in all their states and names, and as many of others
# Where more machines and states than that share it, of each its newest, which holds what its older ones measured, and
# then the others of which the next one is made (app.advisor.time_model.pooled.POOLED with itself).
KEPT_NEWEST, COUNTING = 400, 4
LISTED_PROFILES = 50
# What a list tells beside the numbers of points and networks.
_HEAD = ("name", "machine", "created_at", "fingerprint", "effort", "software", "noise")
_MEMBERS = ", ".join(f"'{name}', json_extract(document, '$.{name}')" for name in ("schema_version", *_HEAD))
# SQLite reads the documents, of which Python would hold up everybody for seconds.
_READ_HEAD = (
    f"SELECT CASE WHEN json_valid(document) THEN json_object({_MEMBERS}, "
    "'calibrations', coalesce(json_extract(document, '$.calibrations'), 1), "
    "'points', json_array_length(document, '$.points'), 'networks', json_array_length(document, '$.networks')) END "
    "FROM profiles WHERE id = ?"
)
# Of several of a name those with this fingerprint come first, then the newest. The first that can be read counts.
_ORDER = "ORDER BY fingerprint = ? DESC, id DESC"
FIND_NAMED = f"SELECT id, created_at FROM profiles WHERE name = ? {_ORDER}"
_LIST = f"SELECT name, id FROM profiles {_ORDER}"
_KEEP = "INSERT INTO profiles (name, fingerprint, created_at, document, calibration) VALUES (?, ?, ?, ?, ?)"
_FORGET_EACH = (
    "DELETE FROM profiles WHERE name = ?1 AND fingerprint = ?2 AND id NOT IN "
    "(SELECT id FROM profiles WHERE name = ?1 AND fingerprint = ?2 ORDER BY id DESC LIMIT ?3)"
)
# Calibrated by a machine that this store is of, or of a state that one of them was seen in.
_OURS = "(calibration IS NOT NULL OR fingerprint IN (SELECT fingerprint FROM surveys))"


def keep_profile(profile: Profile, calibration: Profile | None) -> list[Statement]:
    """Statements that keep one and forget the oldest beyond the bounds: others' never at the cost of ours, of a
    name and fingerprint the newest after all that are not, and those that count after those that do not."""
    key = (profile.name, profile.fingerprint)
    alone = None if calibration is None else dump(calibration.to_json())
    return [
        (_KEEP, (*key, time.time(), dump(profile.to_json()), alone)),
        (_FORGET_EACH, (*key, KEPT_PROFILES_EACH)),
        _forget_beyond(_OURS, KEPT_PROFILES, KEPT_NEWEST),
        _forget_beyond(f"NOT {_OURS}", KEPT_PROFILES, KEPT_PROFILES),
    ]


def read_heads(connection: sqlite3.Connection, fingerprint: str) -> list[dict[str, Any]]:
    """What a list tells of the profile that FIND_NAMED finds of each name, newest first."""
    rows: dict[str, list[int]] = {}
    for name, row in connection.execute(_LIST, (fingerprint,)):
        rows.setdefault(name, []).append(row)
    found: list[tuple[int, dict[str, Any]]] = []
    for of_one_name in sorted(rows.values(), reverse=True):
        readable = ((row, head) for row in of_one_name if (head := _read_head(connection, row)) is not None)
        found += islice(readable, 1)
        if len(found) == LISTED_PROFILES:
            break
    return [head for _, head in sorted(found, key=itemgetter(0), reverse=True)]


def head_of(profile: Profile) -> dict[str, Any]:
    """What a list tells of a profile that is not stored."""
    counts = {"points": len(profile.points), "networks": len(profile.networks)}
    return {**{name: getattr(profile, name) for name in _HEAD}, "calibrations": profile.calibrations, **counts}


def _read_head(connection: sqlite3.Connection, row: int) -> dict[str, Any] | None:
    """None for what is no profile of a schema that is known."""
    (text,) = connection.execute(_READ_HEAD, (row,)).fetchone()
    head: dict[str, Any] = {} if text is None else json.loads(text)
    is_readable = head.pop("schema_version", None) in READABLE_VERSIONS and None not in head.values()
    return head if is_readable else None


def _forget_beyond(which: str, kept: int, newest: int) -> Statement:
    """newest: of those that are the newest of their name and fingerprint, which stay before all others, and of those
    that count, which stay before what is left."""
    place = "row_number() OVER (PARTITION BY name, fingerprint ORDER BY id DESC) AS place"
    placed = f"SELECT id, {place} FROM profiles WHERE {which}"
    rank = f"row_number() OVER (ORDER BY place > 1, place > {COUNTING}, id DESC) AS rank"
    ranked = f"SELECT id, place, {rank} FROM ({placed})"
    staying = f"SELECT id FROM ({ranked}) WHERE rank <= CASE WHEN place <= {COUNTING} THEN ?1 ELSE ?2 END"
    return f"DELETE FROM profiles WHERE {which} AND id NOT IN ({staying})", (newest, kept)
