"""The reason that tells how often the cores were slow while real steps ran, as beside a neighbour that no counter
shows, and what that did to each plan."""

from __future__ import annotations

from collections.abc import Container, Sequence

from app.advisor.crowding import LEAST_EXPOSURE, Crowd
from app.advisor.environments import is_variant
from app.advisor.explanations.words import say_percent, say_ratio, say_seconds
from app.advisor.recommendation import Reason
from probes.measurement import Measurement
from probes.workload.description import Plan

OFTEN = 0.1  # of a plan's samples; less moves no mean by more than a few percent

FELT = 1.05  # times as long, from which on a step took longer


def explain_slow_cores(
    rested: Sequence[Measurement],
    best: Plan,
    crowd: Crowd | None,
    relieved: Container[tuple[object, ...]],
    *,
    elsewhere: bool,
) -> Reason | None:
    """Told where it happened often to a plan that was measured at the batch asked for. rested: what the plans' times
    there rest on. best: the recommended one. Where others hold its cores as they did then, what is told contains it,
    and the reason `crowded` says so. relieved: the keys of plans whose time lies between extremes, as those others have
    left. elsewhere: it was on another machine, where nothing is measured."""
    rows = [row for row in rested if _is_plain(row) and not _is_contained(row, crowd)]
    often = [row for row in rows if (row.slow_share or 0.0) >= OFTEN]
    if not often:
        return None
    # How far those are off that met no calm block nobody knows; of several the one that was slow the most.
    worst = max(often, key=lambda row: (row.slowdown is None, _mean(row) / _median(row), row.slow_share))
    said = [
        f"The cores were slow in {say_percent(worst.slow_share or 0.0)} of the blocks of {worst.plan.label}"
        f"{_beside(worst, crowd, elsewhere=elsewhere)}.",
        _what_follows(worst, is_relieved=worst.plan.key in relieved, elsewhere=elsewhere),
        _on_average(rows, best),
    ]
    numbers = {
        row.plan.label: {"slow_share": row.slow_share, "slowdown": row.slowdown, "mean_seconds": _mean(row)}
        for row in rows
    }
    return Reason("slow-cores", " ".join(part for part in said if part), {"plans": numbers})


def _is_contained(row: Measurement, crowd: Crowd | None) -> bool:
    return crowd is not None and row.slowdown is not None and crowd.still_met(row.plan, row.others_cores) > 0


def _beside(row: Measurement, crowd: Crowd | None, *, elsewhere: bool) -> str:
    """Whose work it was beside."""
    if crowd is not None and crowd.exposure_then(row.plan, row.others_cores) >= LEAST_EXPOSURE:
        return f", while others held {row.others_cores:.1f} cores of {'that' if elsewhere else 'this'} machine"
    apart = "" if row.plan.threads == 1 else " or on cores that share no cache,"
    return f", as beside another machine's work on the same processor{apart or ','} which no counter shows"


def _is_plain(row: Measurement) -> bool:
    """Of a plan on a CPU as torch has it."""
    return row.slow_share is not None and row.step is not None and not is_variant(row.plan)


def _what_follows(row: Measurement, *, is_relieved: bool, elsewhere: bool) -> str:
    if is_relieved and row.is_unsteady:
        return "Its note says between which times it lies."
    met = "No block was calm" if row.slow_share == 1.0 else "They may have held up any block"
    if is_relieved and elsewhere:
        return f"{met}: what is told lies between what steps took and what they would take without them."
    if is_relieved:
        return (
            f"{met}, and those others hold fewer cores by now: what is told lies between what steps took and what they "
            "would take without them. Measure it again (effort quick)."
        )
    again = "" if elsewhere else " Measure it again later (effort quick)."
    if row.slowdown is None and (row.slow_share or 0.0) < 1.0:
        return (
            "The calm blocks took no less, so something else was in their way as well: what is told is what steps "
            f"took.{again}"
        )
    if row.slowdown is None:
        return (
            f"No block was calm: what is told is what steps took, reckoned back where that may have slowed them.{again}"
        )
    if row.slowdown < FELT:
        return "Its steps hardly took longer there."
    return f"There its steps took {say_ratio(row.slowdown)} as long; what is told is what they take otherwise."


def _on_average(rows: Sequence[Measurement], best: Plan) -> str:
    """Where another plan took the least over all blocks, slow ones among them."""
    least = min(rows, key=_mean)
    named = next((row for row in rows if row.plan.key == best.key), None)
    if named is None or _mean(named) <= _mean(least):
        return ""
    return (
        f"Slow blocks among them, {least.plan.label} took {say_seconds(_mean(least))} a step on average and "
        f"{best.label} {say_seconds(_mean(named))}: if the machine stays so, {least.plan.label} is the better choice."
    )


def _median(row: Measurement) -> float:
    return row.step.median if row.step is not None else 0.0


def _mean(row: Measurement) -> float:
    """Seconds of a step over all blocks; where none was calm what is known is the reckoned one."""
    return _median(row) * (1 + (row.slow_share or 0.0) * ((row.slowdown or 1.0) - 1))
