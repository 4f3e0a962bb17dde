"""Whether counts of what issues operations, written by somebody else, can be reckoned with."""

from __future__ import annotations

from typing import Any

from probes import bounds
from probes.checked import Refused, check_count, check_list
from probes.issued import Issued

MOST = bounds.MAX_MODULES * 1000


def check_issued(value: Any, place: str) -> Issued | None:
    """As a trace or a context has them; None: they were not counted. Raises Refused."""
    if value is None:
        return None
    expected = len(Issued._fields)
    counts = check_list(value, place, expected)
    if len(counts) != expected:
        raise Refused(f"{place} has {len(counts)} entries where {expected} are expected")
    return Issued(*(check_count(count, place, 0, MOST) for count in counts))
