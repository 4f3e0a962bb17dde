"""Which of a workload's measurements count: a later one takes an earlier one's place where it says as much."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from operator import itemgetter

from probes.measurement import Measurement

Placed = tuple[int, Measurement]

# Others who held as much of a core more may have been in a step's way (app.advisor.crowding knows whether they were):
# how quick the cores are says nothing of them.
MORE_CORES = 0.1


def latest_of(measurements: Iterable[Measurement]) -> list[Measurement]:
    """Of each plan, batch size and way of feeding, all of which are one on a CPU, the latest, in the order given, which
    is that of time.

    A failure may be the moment's (too little or taken memory, too little time, a process that was killed): it stands
    beside the times, which it does not disprove, and so does what torch refused. So does what met no calm cores, or
    others who hold more of them than before, or others on a device: once they have left, what met none says more. A
    single first step says nothing that the steps before it have not said.
    """
    found: dict[object, list[Placed]] = {}
    for place, row in enumerate(measurements):
        key = (row.plan.key, row.batch_size, None if row.plan.is_cpu else row.data)
        found[key] = _with_later(found.get(key, []), (place, row))
    return [row for _, row in sorted(chain.from_iterable(found.values()), key=itemgetter(0))]


def _with_later(before: list[Placed], later: Placed) -> list[Placed]:
    """What counts of one plan, batch size and way of feeding, once this came after what counted."""
    row = later[1]
    if row.outcome == "out-of-memory":
        return [*(placed for placed in before if placed[1].outcome == "ok"), later]
    if row.outcome in ("failed", "unsupported"):
        return [*(placed for placed in before if placed[1].outcome != row.outcome), later]
    if row.outcome == "ok" and row.is_first_step and any(_went_on(earlier) for _, earlier in before):
        return before
    if row.outcome == "ok":
        return [*(placed for placed in before if _may_say_more(placed[1], row)), later]
    return [later]


def _may_say_more(before: Measurement, later: Measurement) -> bool:
    """Once those have left who were there later."""
    if not _is_undisturbed(before):
        return False
    among_more = (later.others_cores or 0.0) - (before.others_cores or 0.0) >= MORE_CORES
    met_a_spell = later.is_unsteady and not before.is_unsteady
    return not _is_undisturbed(later) or met_a_spell or (before.plan.is_cpu and among_more)


def _is_undisturbed(row: Measurement) -> bool:
    """It met calm cores, or on a device nobody else."""
    return row.outcome == "ok" and (row.slowdown is not None or row.met_nobody)


def _went_on(row: Measurement) -> bool:
    """It ran beyond its first step."""
    return row.outcome == "ok" and not row.is_first_step
