"""Plans whose times are drawn curves."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from app.advisor.memory_model.stretches import Stretch, Stretches
from app.advisor.time_model.intervals import interval_around
from app.advisor.time_model.step_estimate import StepEstimate
from app.advisor.time_model.step_time import PlanTime
from probes.workload.description import Plan

Curve = Callable[[int], float]
# Each plan's errors on three networks left out: large, and alike.
ERRORS: Mapping[str, float] = {"a": 0.5, "b": -0.4, "c": 0.3}


def up_to(largest: int) -> Stretches:
    return Stretches((Stretch(1, largest),))


class Drawn(PlanTime):
    """A prediction that is a drawn curve, off by half either way, as the other plan's would be too."""

    def __init__(self, plan: Plan, curve: Curve, errors: Mapping[str, float] | None = ERRORS) -> None:
        super().__init__(plan, None, None, None)
        self.curve, self.errors = curve, errors

    def at(self, batch_size: int, data: str) -> StepEstimate | None:
        return StepEstimate(interval_around(self.curve(batch_size), 0.5), "predicted", self.errors)
