"""What was measured while others held a plan's cores for moments, whom nobody saw: its samples alone tell of them.

A thread that waits for its core does not read the cores' pace (docs/decisions/0013).
"""

from __future__ import annotations

from dataclasses import replace

from app.advisor.crowding import Crowd
from app.advisor.time_model.step_estimate import StepEstimate
from probes.measurement import Measurement


def may_be_explained(row: Measurement, crowd: Crowd | None) -> bool:
    """By a crowd that is known: it was there and has left, or is there still."""
    return crowd is not None and (crowd.relief_of(row) > 0 or crowd.still_met(row.plan, row.others_cores) > 0)


def tells_of_its_moment(row: Measurement, crowd: Crowd | None) -> bool:
    """And of no other batch, where something is predicted, which met nobody: what it took is in part others' doing, who
    are fewer now, or whom nobody saw."""
    return row.is_unsteady or (crowd is not None and crowd.tells_of_the_past(row))


def as_foretold_at_best(told: StepEstimate, foretold: StepEstimate | None) -> StepEstimate:
    """What was met need not be there again: on a calm machine the plan takes what is predicted, as far as anybody can
    tell, and at worst what it took. foretold: None where nothing is, or it says no less."""
    if foretold is None or foretold.seconds.median >= told.seconds.median:
        return told
    slowed = foretold.seconds.median / told.seconds.median
    seconds = replace(foretold.seconds, high=max(foretold.seconds.high, told.seconds.high))
    return told._replace(seconds=seconds, basis="probed", slowed=slowed)
