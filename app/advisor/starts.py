"""From how many steps on a plan repays its start: a compiled one against the best that has none, a device's against
the CPU's best."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from app.advisor.curves.over_batches import startup_of
from app.advisor.environments import Gain
from app.advisor.recommendation import Option
from probes.measurement import Measurement
from probes.workload.description import Plan


@dataclass(frozen=True, slots=True)
class Repaid:
    """steps: so many repay the start, which takes so many seconds more. against: the plan that a shorter run is better
    done with."""

    steps: int
    against: Plan
    startup_seconds: float

    def within(self, steps: int | None) -> bool:
        """A run of so many steps; None: nobody said how long it is."""
        return steps is None or self.steps < steps


# By the key of a plan that has a start to repay.
Starts = Mapping[tuple[object, ...], Repaid | None]


def repaid_starts(gains: Sequence[Gain], options: Sequence[Option]) -> Starts:
    """By the times that options are judged by, which are not those of a trial (measured_beside). None of a plan whose
    step is no shorter than the best other one's: no run repays it. No entry of one without a time, nor without a time
    of another.

    gains: of these the compiled ones have a start to pay, beside what every plan takes. options: all, at their batch.
    """
    judged = [(option.plan, seconds) for option in options if (seconds := option.judged_seconds) is not None]
    best = min((each for each in judged if not each[0].compiled), key=lambda each: each[1], default=None)
    if best is None:
        return {}
    took = {plan.key: seconds for plan, seconds in judged}
    compiled = [gain for gain in gains if gain.plan.compiled and gain.plan.key in took]
    return {gain.plan.key: _repaid(gain.startup_seconds, took[gain.plan.key], *best) for gain in compiled}


def _repaid(startup_seconds: float, step_seconds: float, against: Plan, their_step_seconds: float) -> Repaid | None:
    gain = their_step_seconds - step_seconds
    return Repaid(math.ceil(startup_seconds / gain), against, startup_seconds) if gain > 0 else None


def late_starts(options: Sequence[Option], starts: Starts, steps: int | None) -> list[Option]:
    """Those that a run of so many steps does not repay; none where nobody said how long it is."""
    if steps is None:
        return []
    repaid = {key: found is not None and found.within(steps) for key, found in starts.items()}
    return [option for option in options if not repaid.get(option.plan.key, True)]


def unrepaid_devices(
    options: Sequence[Option],
    rows: Mapping[tuple[object, ...], Sequence[Measurement]],
    batch_size: int,
    kinds: Mapping[str, Hashable],
    steps: int | None,
) -> Starts:
    """Plans on a device whose start a run of so many steps does not repay, by their keys: against the best one of the
    CPU that is not compiled, beyond what that one's first step takes, where it was measured. None of a plan whose step
    is no shorter, and cannot be told to be with its start spread over the run. No entry of one whose start nobody
    knows; none at all where nobody said how long the run is, nor without a time of such a plan of the CPU.

    options: all, at this batch size. rows: by the plan's key. kinds: by device, the same for cards that are alike.
    """
    judged = [(option, seconds) for option in options if (seconds := option.judged_seconds) is not None]
    on_cpu = [each for each in judged if each[0].plan.is_cpu and not each[0].plan.compiled]
    if steps is None or not on_cpu:
        return {}
    best, their_seconds = min(on_cpu, key=lambda each: each[1])
    begun = startup_of(best.plan, rows.get(best.plan.key, ()), batch_size) or 0.0
    starts = _device_starts([option.plan for option in options if not option.plan.is_cpu], rows, batch_size, kinds)
    found: dict[tuple[object, ...], Repaid | None] = {}
    for option, seconds in judged:
        key = option.plan.key
        if key in starts:
            more = max(starts[key] - begun, 0.0)
            repaid = _repaid(more, seconds, best.plan, their_seconds)
            if not (_may_be_shorter(option, best, more / steps) if repaid is None else repaid.within(steps)):
                found[key] = repaid
    return found


def start_of(
    plan: Plan,
    plans: Sequence[Plan],
    rows: Mapping[tuple[object, ...], Sequence[Measurement]],
    batch_size: int,
    kinds: Mapping[str, Hashable],
) -> float | None:
    """Seconds before a plan's steps of this batch are steady, as unrepaid_devices takes it; None where nobody knows.
    plans: all, as one on the same device tells of a context."""
    if plan.is_cpu:
        return startup_of(plan, rows.get(plan.key, ()), batch_size)
    on_devices = [each for each in (*plans, plan) if not each.is_cpu]
    return _device_starts(on_devices, rows, batch_size, kinds).get(plan.key)


def _may_be_shorter(option: Option, best: Option, more_seconds: float) -> bool:
    """Whether its interval reaches the other's with so much more a step."""
    ours, theirs = option.step_seconds, best.step_seconds
    return ours is not None and theirs is not None and ours.low + more_seconds <= theirs.high


def _device_starts(
    plans: Sequence[Plan],
    rows: Mapping[tuple[object, ...], Sequence[Measurement]],
    batch_size: int,
    kinds: Mapping[str, Hashable],
) -> dict[tuple[object, ...], float]:
    """Seconds, by the plan's key. A context begins before the first step of any plan: of one that was not measured, the
    least that was on its device or on one that is alike."""
    own: dict[tuple[object, ...], float] = {}
    least: dict[Hashable, float] = {}
    for plan in plans:
        took, kind = startup_of(plan, rows.get(plan.key, ()), batch_size), kinds.get(plan.device, plan.device)
        if took is not None:
            own[plan.key] = took
            least[kind] = min(took, least.get(kind, took))
    kind_of = {plan.key: kinds.get(plan.device, plan.device) for plan in plans}
    return {key: least[kind] for key, kind in kind_of.items() if kind in least} | own
