"""From how many steps on a plan repays its start: a compiled one against the best that has none, a device's against
the CPU's best, and against the device's plan that a run is soonest over with."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from app.advisor.curves.over_batches import startup_of
from app.advisor.environments import Gain, bare
from app.advisor.like_cards import measured_plan, on_its_kind
from app.advisor.recommendation import Option
from probes.measurement import Measurement
from probes.profile import Profile
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


def repaid_starts(
    gains: Sequence[Gain], options: Sequence[Option], begun: Mapping[tuple[object, ...], float] = MappingProxyType({})
) -> Starts:
    """By the times that options are judged by, which are not those of a trial (measured_beside). None of a plan whose
    step is no shorter than the best other one's: no run repays it. No entry of one without a time, nor without a time
    of another.

    gains: of these the compiled ones have a start to pay, beside what every plan takes. options: all, at their batch.
    begun: seconds by the plan's key that beginning on its device takes the other one, too (device_starts).
    """
    judged = [(option.plan, seconds) for option in options if (seconds := option.judged_seconds) is not None]
    best = min((each for each in judged if not each[0].compiled), key=lambda each: each[1], default=None)
    if best is None:
        return {}
    took = {plan.key: seconds for plan, seconds in judged}
    theirs = begun.get(bare(best[0]).key, 0.0)
    more = {gain.plan.key: max(gain.startup_seconds - theirs, 0.0) for gain in gains if gain.plan.compiled}
    return {key: _repaid(seconds, took[key], *best) for key, seconds in more.items() if key in took}


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
    calibrated: Mapping[str, float] = MappingProxyType({}),
) -> Starts:
    """Plans on a device whose start a run of so many steps does not repay, by their keys: against the best one of the
    CPU that is not compiled, beyond what that one's first step takes, where it was measured; and, where its own was
    measured, against the plan on a device of which that is so, too, and that the run is soonest over with, if the two
    can be told apart. Told against the one of both that is sooner done. None of a plan whose step is no shorter, and
    cannot be told to be with its start spread over the run. No entry of one whose start nobody knows; none at all where
    nobody said how long the run is, nor of compiled ones, which repaid_starts judges.

    options: all, at this batch size. rows: by the plan's key. kinds, calibrated: see device_starts.
    """
    if steps is None:
        return {}
    options = [option for option in options if not option.plan.compiled]
    on_devices = [option.plan for option in options if not option.plan.is_cpu]
    own = _measured_starts(on_devices, rows, batch_size)
    starts = device_starts(on_devices, rows, batch_size, kinds, calibrated)
    timed = [option for option in options if option.judged_seconds is not None]
    runs = [_Run(option, starts[option.plan.key], steps) for option in timed if option.plan.key in starts]
    of_card = min((run for run in runs if run.option.plan.key in own), key=lambda run: run.seconds, default=None)
    rivals = [run for run in (_on_cpu(timed, rows, batch_size, steps), of_card) if run is not None]
    rivals.sort(key=lambda run: run.seconds)
    found: dict[tuple[object, ...], Repaid | None] = {}
    for run in runs:
        plan = run.option.plan
        for rival in rivals:
            may_compare = rival is not of_card or (plan.key in own and not _is_twin(plan, rival.option.plan, kinds))
            if may_compare and plan.key not in found and not run.may_pay_against(rival):
                found[plan.key] = run.repaid_against(rival)
    return found


@dataclass(frozen=True, slots=True)
class _Run:
    """So many steps of a plan, after its start."""

    option: Option
    start: float
    steps: int

    @property
    def step_seconds(self) -> float:
        return self.option.judged_seconds or 0.0

    @property
    def seconds(self) -> float:
        return self.start + self.steps * self.step_seconds

    def repaid_against(self, rival: _Run) -> Repaid | None:
        return _repaid(self._more(rival), self.step_seconds, rival.option.plan, rival.step_seconds)

    def may_pay_against(self, rival: _Run) -> bool:
        """Where the step is shorter: by the medians against the CPU, which is the cheaper one; else unless the two are
        told apart."""
        repaid = self.repaid_against(rival)
        if repaid is not None and (rival.option.plan.is_cpu or repaid.within(self.steps)):
            return repaid.within(self.steps)
        return _may_be_shorter(self.option, rival.option, self._more(rival) / self.steps)

    def _more(self, rival: _Run) -> float:
        """Seconds that this start takes beyond the other."""
        return max(self.start - rival.start, 0.0)


def _on_cpu(
    timed: Sequence[Option],
    rows: Mapping[tuple[object, ...], Sequence[Measurement]],
    batch_size: int,
    steps: int,
) -> _Run | None:
    """The best of the CPU's plans; None where none has a time."""
    plain = [option for option in timed if option.plan.is_cpu]
    best = min(plain, key=lambda option: option.judged_seconds or 0.0, default=None)
    if best is None:
        return None
    return _Run(best, startup_of(best.plan, rows.get(best.plan.key, ()), batch_size) or 0.0, steps)


def _is_twin(plan: Plan, other: Plan, kinds: Mapping[str, Hashable]) -> bool:
    """One plan on two cards that are alike, or the very same, is no choice between two."""
    return on_its_kind(plan, kinds) == on_its_kind(other, kinds)


def start_of(
    plan: Plan,
    plans: Sequence[Plan],
    rows: Mapping[tuple[object, ...], Sequence[Measurement]],
    batch_size: int,
    kinds: Mapping[str, Hashable],
    calibrated: Mapping[str, float] = MappingProxyType({}),
) -> float | None:
    """Seconds before a plan's steps of this batch are steady, as unrepaid_devices takes it; None where nobody knows.
    plans: all, as one on the same device tells of a context."""
    if plan.is_cpu:
        return startup_of(plan, rows.get(plan.key, ()), batch_size)
    return device_starts((*plans, plan), rows, batch_size, kinds, calibrated).get(plan.key)


def device_starts(
    plans: Sequence[Plan],
    rows: Mapping[tuple[object, ...], Sequence[Measurement]],
    batch_size: int,
    kinds: Mapping[str, Hashable],
    calibrated: Mapping[str, float] = MappingProxyType({}),
) -> dict[tuple[object, ...], float]:
    """Seconds, by the key of each of these plans that is on a device whose start is known. A context begins before the
    first step of any plan: of one that was not measured the least that was measured on its device or on one that is
    alike; where nothing was, what a calibration took to begin there.

    rows: by the plan's key. kinds: by device, the same for cards that are alike. calibrated: seconds by device."""
    on_devices = [plan for plan in plans if not plan.is_cpu]
    own = _measured_starts(on_devices, rows, batch_size)
    kind_of = {plan.key: kinds.get(plan.device, plan.device) for plan in on_devices}
    least: dict[Hashable, float] = {}
    for key, took in own.items():
        least[kind_of[key]] = min(took, least.get(kind_of[key], took))
    begun = {plan.key: calibrated[plan.device] for plan in on_devices if plan.device in calibrated}
    return begun | {key: least[kind] for key, kind in kind_of.items() if kind in least} | own


def calibrated_starts(profile: Profile | None, plans: Sequence[Plan]) -> dict[str, float]:
    """Of these plans' devices, by device, what the calibration took to begin there, or on the card like it that was
    measured in its place."""
    known = {} if profile is None else profile.start_seconds or {}
    found = {plan.device: known.get(measured_plan(profile, plan).device) for plan in plans if profile is not None}
    return {device: seconds for device, seconds in found.items() if seconds is not None}


def _may_be_shorter(option: Option, best: Option, more_seconds: float) -> bool:
    """Whether its interval reaches the other's with so much more a step."""
    ours, theirs = option.step_seconds, best.step_seconds
    return ours is not None and theirs is not None and ours.low + more_seconds <= theirs.high


def _measured_starts(
    plans: Sequence[Plan], rows: Mapping[tuple[object, ...], Sequence[Measurement]], batch_size: int
) -> dict[tuple[object, ...], float]:
    """Seconds, by the plan's key. A variant starts as its bare plan does, but for one that has to be compiled: what the
    process of its trial took to begin was another process's luck."""
    own = {plan.key: plan if plan.compiled else bare(plan) for plan in plans}
    found = {key: startup_of(plan, rows.get(plan.key, ()), batch_size) for key, plan in own.items()}
    return {key: seconds for key, seconds in found.items() if seconds is not None}
