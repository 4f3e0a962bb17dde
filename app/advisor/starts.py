"""From how many steps on a compiled plan repays its start, against the best that has none."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.advisor.environments import Gain
from app.advisor.ranking import judged_seconds
from app.advisor.recommendation import Option
from probes.workload.description import Plan


@dataclass(frozen=True, slots=True)
class Repaid:
    """steps: so many repay the start. against: the plan that a shorter run is better done with."""

    steps: int
    against: Plan

    def within(self, steps: int | None) -> bool:
        """A run of so many steps; None: nobody said how long it is."""
        return steps is None or self.steps < steps


# By the compiled plan's key.
Starts = Mapping[tuple[object, ...], Repaid | None]


def repaid_starts(gains: Sequence[Gain], options: Sequence[Option]) -> Starts:
    """By the times that options are judged by, which are not those of a trial (measured_beside). None of a plan whose
    step is no shorter than the best other one's: no run repays it. No entry of one without a time, nor without a time
    of another.

    gains: of these the compiled ones have a start to pay, beside what every plan takes. options: all, at their batch.
    """
    judged = [(option.plan, seconds) for option in options if (seconds := judged_seconds(option)) is not None]
    best = min((each for each in judged if not each[0].compiled), key=lambda each: each[1], default=None)
    if best is None:
        return {}
    took = {plan.key: seconds for plan, seconds in judged}
    compiled = [gain for gain in gains if gain.plan.compiled and gain.plan.key in took]
    return {gain.plan.key: _repaid(gain.startup_seconds, took[gain.plan.key], *best) for gain in compiled}


def _repaid(startup_seconds: float, step_seconds: float, against: Plan, their_step_seconds: float) -> Repaid | None:
    gain = their_step_seconds - step_seconds
    return Repaid(math.ceil(startup_seconds / gain), against) if gain > 0 else None


def late_starts(options: Sequence[Option], starts: Starts, steps: int | None) -> list[Option]:
    """Those that a run of so many steps does not repay; none where nobody said how long it is."""
    if steps is None:
        return []
    repaid = {key: found is not None and found.within(steps) for key, found in starts.items()}
    return [option for option in options if not repaid.get(option.plan.key, True)]
