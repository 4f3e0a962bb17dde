"""Profiles: which are kept, and what a list tells of them."""

from __future__ import annotations

import time
from typing import Any

from app.store.statements import Statement, dump
from probes.profile import Profile

# A profile is about a megabyte, and 4 MB at most.
KEPT_PROFILES_EACH = 10  # of one name and fingerprint
KEPT_PROFILES = 100  # of this machine, in all its states and names, and as many of others
# What a list tells beside the numbers of points and networks.
_HEAD = ("name", "machine", "created_at", "fingerprint", "effort", "software", "noise")
_MEMBERS = ", ".join(f"'{name}', json_extract(document, '$.{name}')" for name in _HEAD)
# SQLite reads the documents, of which Python would hold up everybody for seconds.
LIST_HEADS = (
    f"SELECT CASE WHEN json_valid(document) THEN json_object({_MEMBERS}, "
    "'calibrations', coalesce(json_extract(document, '$.calibrations'), 1), "
    "'points', json_array_length(document, '$.points'), 'networks', json_array_length(document, '$.networks')) END "
    "FROM profiles WHERE id IN "
    "(SELECT coalesce(max(CASE fingerprint WHEN ? THEN id END), max(id)) FROM profiles GROUP BY name) "
    "ORDER BY id DESC LIMIT 50"
)
_KEEP = "INSERT INTO profiles (name, fingerprint, created_at, document, calibration) VALUES (?, ?, ?, ?, ?)"
_FORGET_EACH = (
    "DELETE FROM profiles WHERE name = ?1 AND fingerprint = ?2 AND id NOT IN "
    "(SELECT id FROM profiles WHERE name = ?1 AND fingerprint = ?2 ORDER BY id DESC LIMIT ?3)"
)
# Calibrated by a machine that this store is of, or of a state that one of them was seen in.
_OURS = "(calibration IS NOT NULL OR fingerprint IN (SELECT fingerprint FROM surveys))"


def keep_profile(profile: Profile, calibration: Profile | None) -> list[Statement]:
    """Statements that keep one and forget the oldest beyond the bounds: others' never at the cost of ours."""
    key = (profile.name, profile.fingerprint)
    alone = None if calibration is None else dump(calibration.to_json())
    return [
        (_KEEP, (*key, time.time(), dump(profile.to_json()), alone)),
        (_FORGET_EACH, (*key, KEPT_PROFILES_EACH)),
        _forget_all_but_newest(_OURS),
        _forget_all_but_newest(f"NOT {_OURS}"),
    ]


def read_head(document: dict[str, Any]) -> dict[str, Any]:
    """Raises ValueError for what is no profile of a schema that is known."""
    if any(document[name] is None for name in (*_HEAD, "points", "networks")):
        raise ValueError("no profile")
    return document


def _forget_all_but_newest(which: str) -> Statement:
    newest = f"SELECT id FROM profiles WHERE {which} ORDER BY id DESC LIMIT ?"
    return f"DELETE FROM profiles WHERE {which} AND id NOT IN ({newest})", (KEPT_PROFILES,)
