"""How the time of an answer that measures is divided: between starting, the batch asked for, and what is left."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from app.advisor.recommendation import Option, Recommendation
from probes.workload.description import Plan

# With less than this no plan gets steady. An answer that is a little late is worth more than one without a measurement.
LEAST_MEASURING_SECONDS = 2.0
# What comes before the first step (a process that imports torch, and the tracing of a model that is new) is not on the
# time for measuring, up to this. What takes longer is, but for a share of the time that is kept for steps.
START_SECONDS, LEAST_SHARE = 3.0, 0.4
# Of the time for measuring: the plans at the batch asked for, which is what was asked; plans that have few samples by
# then get the rest. Other batches get what is left, which is more where the plans are soon told apart.
CONTEST_SHARE = 0.55
# Until processes are forked, the model is built and its memory touched it takes so long. Then every plan wants so many
# steps: fifteen that count, and two before, of which the first takes up to three times as long.
BUILDING_SECONDS, CONTEST_STEPS = 2.5, 19
# So many times as long as the fastest plan's step: such a plan is measured last, with what time the others leave
# (probes.microtrain.measuring.contest).
SLOW = 3.0
# A first step that has begun is waited for, and so is building the model, so long beyond the time for measuring
# (probes.microtrain.measure).
WAITED_FOR_SECONDS = 30.0
# Waiting for the machine takes as long as another question does that may measure as long, whose process starts and ends
# as well, and long enough for a calibration to give way.
LEAST_PATIENCE_SECONDS, ENDING_SECONDS = 6.0, 2.0


def fitting_plans(estimate: Recommendation, plans: Sequence[Plan]) -> list[Plan]:
    """The plans that are not known to need more memory than there is."""
    too_large = {option.plan.key for option in estimate.options if option.fits is False}
    return [plan for plan in plans if plan.key not in too_large]


def options_of(estimate: Recommendation, plans: Sequence[Plan]) -> list[Option]:
    wanted = {plan.key for plan in plans}
    return [option for option in estimate.options if option.plan.key in wanted]


def seconds_left(allowed: float, spent: float) -> float:
    """Of those that measuring may take, so long after its turn came."""
    return min(allowed, allowed + START_SECONDS - spent)


def contest_seconds(estimate: Recommendation, plans: Sequence[Plan], seconds: float) -> float:
    """Of these seconds, what the plans get at the batch asked for: most of it, and all where steps are long."""
    needed = BUILDING_SECONDS + CONTEST_STEPS * seconds_of_a_step_each(options_of(estimate, plans))
    return max(LEAST_MEASURING_SECONDS, min(seconds, max(CONTEST_SHARE * seconds, needed)))


def seconds_of_a_step_each(options: Iterable[Option]) -> float:
    """Of those whose time is known, but for the slow ones, which have what time the others leave."""
    times = [option.step_seconds.median for option in options if option.step_seconds is not None]
    return sum(time for time in times if time <= SLOW * min(times))


def expected_seconds(estimate: Recommendation, plans: Sequence[Plan]) -> list[float | None]:
    """Of a step under each of the plans, as far as anything is known."""
    times = {option.plan.key: option.step_seconds for option in estimate.options}
    found = (times.get(plan.key) for plan in plans)
    return [None if time is None else time.median for time in found]
