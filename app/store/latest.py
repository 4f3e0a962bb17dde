"""Which of a workload's measurements count: a later one takes an earlier one's place where it says as much."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from operator import itemgetter

from probes.measurement import Measurement

Placed = tuple[int, Measurement]


def latest_of(measurements: Iterable[Measurement]) -> list[Measurement]:
    """Of each plan, batch size and way of feeding the latest, in the order given, which is that of time.

    A failure may be the moment's (too little time, a process that was killed): it stands beside what it does not
    disprove. So does what met no calm cores: once who held them has left, what met some says more. A single first step
    says nothing that the steps before it have not said.
    """
    found: dict[object, list[Placed]] = {}
    for place, row in enumerate(measurements):
        key = (row.plan.key, row.batch_size, row.data)
        found[key] = _with_later(found.get(key, []), (place, row))
    return [row for _, row in sorted(chain.from_iterable(found.values()), key=itemgetter(0))]


def _with_later(before: list[Placed], later: Placed) -> list[Placed]:
    """What counts of one plan, batch size and way of feeding, once this came after what counted."""
    row = later[1]
    if row.outcome == "failed":
        return [*(placed for placed in before if placed[1].outcome != "failed"), later]
    if row.outcome == "ok" and row.is_first_step and any(_went_on(earlier) for _, earlier in before):
        return before
    if row.outcome == "ok" and row.slowdown is None:
        return [*(placed for placed in before if _met_calm_cores(placed[1])), later]
    return [later]


def _met_calm_cores(row: Measurement) -> bool:
    return row.outcome == "ok" and row.slowdown is not None


def _went_on(row: Measurement) -> bool:
    """It ran beyond its first step."""
    return row.outcome == "ok" and not row.is_first_step
