"""What several calibrations of one machine say together, as one profile.

A shared machine is another one from minute to minute: a calibration meets one of its states, the steps that are asked
about meet others. The mean of calibrations of different hours is nearer to those than the latest of them
(docs/decisions/0011).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, median, median_low
from typing import NamedTuple, TypeVar

from app.advisor.explanations.noise_signs import OF_DEVICES, OF_THREADS, is_disturbed, tells_which_are_reckoned
from app.advisor.time_model.means import grouped, mean_timing, rounded
from app.advisor.time_model.pooled_steps import PooledSteps
from app.advisor.time_model.same_cards import cards_told, of_same_cards
from probes.context import Context
from probes.machine_facts import MachineFacts
from probes.points import NetworkPoint, Point
from probes.profile import METHOD, Profile
from probes.reckoned import on_calm_cores

PlanKey = tuple[object, ...]  # the device first
Figure = TypeVar("Figure", int, float)

# The latest so many of each plan, among as many as the store keeps: of one device alone, or disturbed, there may be
# several in a row.
POOLED, LOOKED_AT = 4, 10
# Among neighbours that no counter and no reading of the cores' pace shows, whole steps take longer. A calibration in
# which a plan's took this many times as long as in the middle one, over as many networks at least, was among such.
SLOWER, LEAST_NETWORKS = 1.08, 3
SLOWED_DEVICE = "cpu"  # on both cards that were at hand the mean of all was nearer (docs/decisions/0011)


def pool(calibrations: Sequence[Profile]) -> Profile:
    """One profile of what counts of the latest calibrations (newest first, at least one) of one machine in one state.

    Times are geometric means of what each measured; what only some measured (other devices, fewer points) stands as
    they have it, but for operations inside steps, which are told as all would have timed them (Levels). What one tells
    of a device that was another kind of card then is left out (of_same_cards). What a card is stands as the newest has
    it that met one.
    """
    calibrations = of_same_cards(calibrations)
    counting = zip(calibrations, counting_plans(calibrations), strict=False)
    pooled = [_only(each, plans) for each, plans in counting if plans]
    newest = pooled[0] if pooled else calibrations[0]
    if len(pooled) < 2:
        return _with_its_cards(newest, calibrations)
    steps, fullest = PooledSteps(pooled), next((each for each in pooled if each.effort == "full"), newest)
    found = replace(
        newest,
        calibrations=len(pooled),
        effort=fullest.effort,
        duration_seconds=fullest.duration_seconds,
        method=min(each.method for each in pooled),
        noise=_noise_of(pooled),
        context_bytes=_merged([each.context_bytes for each in pooled]),
        workspace_bytes=_merged([each.workspace_bytes for each in pooled]),
        start_seconds=_merged([each.start_seconds for each in pooled]),
        like=_likenesses(pooled),
        paces=_quickest([each.paces for each in pooled if each.method == METHOD]),
        points=tuple(_mean_point(rows) for rows in grouped((each.points for each in pooled), _point_key)),
        networks=steps.networks(),
        contexts=steps.contexts(),
    )
    return _with_its_cards(_with_slow_fraction(found, pooled), calibrations)


def counting_plans(calibrations: Sequence[Profile]) -> list[set[PlanKey]]:
    """Of each of the latest calibrations (newest first) the plans that its profile holds: of each plan the POOLED
    newest.

    Disturbed ones count only for plans that no other measured; where only the CPU's threads were disturbed, a device's
    count as well. Slow cores disturb none that says which of its times met them: those are left out one by one
    (PooledSteps). Of a CPU's plan, one whose steps took longer than the others' does not count (_slow_ones). One that
    measured otherwise than a device's newest calm one, or other networks (of another version of crosspoint), does not
    count for that device.
    """
    latest = [(each, _plans_of(each)) for each in of_same_cards(calibrations[:LOOKED_AT])]
    found: list[set[PlanKey]] = [set() for _ in latest]
    for device in dict.fromkeys(plan[0] for _, plans in latest for plan in plans):
        rows = [_on_device(device, place, each, plans) for place, (each, plans) in enumerate(latest)]
        for place, plans in _counting_among([row for row in rows if row.plans]).items():
            found[place] |= plans
    return found


def devices_that_count(calibrations: Sequence[Profile]) -> dict[str, bool]:
    """Of the newest calibration: the devices that it measured, and whether its profile holds any of that."""
    counting = {str(plan[0]) for plan in counting_plans(calibrations)[0]}
    measured = {str(plan[0]) for plan in _plans_of(calibrations[0])}
    return {device: device in counting for device in sorted(measured)}


class _OnDevice(NamedTuple):
    """What a calibration has of one device. place: among the latest. networks: the models behind their names."""

    place: int
    plans: set[PlanKey]
    networks: Mapping[Hashable, str]
    steps: Mapping[PlanKey, Mapping[Hashable, float]]  # seconds of whole ones, by network
    method: int
    is_calm: bool

    def is_like(self, other: _OnDevice) -> bool:
        """Measured alike, on networks of which those of one name are the same model."""
        mine, theirs = self.networks, other.networks
        return self.method == other.method and all(theirs.get(name, key) == key for name, key in mine.items())


def _on_device(device: object, place: int, profile: Profile, plans: Collection[PlanKey]) -> _OnDevice:
    networks: dict[Hashable, str] = {
        (point.name, point.trace.mode): point.trace.model_key
        for point in profile.networks
        if point.plan.device == device
    }
    is_calm = not is_disturbed(profile, on_devices=device != "cpu")
    return _OnDevice(
        place, {plan for plan in plans if plan[0] == device}, networks, steps_of(profile), profile.method, is_calm
    )


def _counting_among(rows: Sequence[_OnDevice]) -> dict[int, set[PlanKey]]:
    """rows: newest first. By the place of the calibration."""
    ruling = next((row for row in rows if row.is_calm), rows[0])
    alike = [row for row in rows if row.is_like(ruling)]
    calmly = {plan for row in alike if row.is_calm for plan in row.plans}
    telling = {row.place: row.plans if row.is_calm else row.plans - calmly for row in alike}
    for plan in {each for plans in telling.values() for each in plans if each[0] == SLOWED_DEVICE}:
        for place in _slow_ones([row for row in alike if plan in telling[row.place]], plan):
            telling[place] = telling[place] - {plan}
    counts: Counter[PlanKey] = Counter()
    found: dict[int, set[PlanKey]] = {}
    for row in alike:
        found[row.place] = {plan for plan in telling[row.place] if counts[plan] < POOLED}
        counts.update(found[row.place])
    return found


def _slow_ones(rows: Sequence[_OnDevice], plan: PlanKey) -> list[int]:
    """The places of those in which this plan's steps took longer, in the median over the networks that all have, than
    in the lower middle one: never of more than half."""
    paces = times_as_long([row.steps.get(plan, {}) for row in rows])
    limit = SLOWER * median_low(paces)
    return [row.place for row, pace in zip(rows, paces, strict=True) if pace > limit]


def steps_of(profile: Profile) -> dict[PlanKey, dict[Hashable, float]]:
    """By plan and network the seconds of a whole step: the median, as most calibrations time it once."""
    steps: dict[PlanKey, dict[Hashable, float]] = defaultdict(dict)
    for point in profile.networks:
        steps[point.plan.key][(point.name, point.trace.mode, point.batch_size)] = point.seconds.median
    return steps


def times_as_long(steps: Sequence[Mapping[Hashable, float]]) -> list[float]:
    """Of one plan's steps in several calibrations how many times as long those of each took as the quickest: the median
    over the networks that all have; 1 each where these are few."""
    common = set(steps[0]).intersection(*steps[1:])
    quickest = {network: min(each[network] for each in steps) for network in common}
    common = {network for network in common if quickest[network] > 0}
    if len(common) < LEAST_NETWORKS:
        return [1.0] * len(steps)
    return [median(each[network] / quickest[network] for network in common) for each in steps]


def _plans_of(profile: Profile) -> set[PlanKey]:
    rows: tuple[Point | NetworkPoint | Context, ...] = (*profile.points, *profile.networks, *profile.contexts)
    return {row.plan.key for row in rows}


def _only(profile: Profile, plans: Collection[PlanKey]) -> Profile:
    """What it has of these plans."""
    if len(plans) == len(_plans_of(profile)):
        return profile
    return replace(
        profile,
        points=tuple(point for point in profile.points if point.plan.key in plans),
        networks=tuple(point for point in profile.networks if point.plan.key in plans),
        contexts=tuple(context for context in profile.contexts if context.plan.key in plans),
    )


def _point_key(point: Point) -> Hashable:
    """Page faults were counted, and may be one more or less each time; everything else was chosen."""
    chosen = {name: value > 0 if name == "faults" else value for name, value in point.parameters.items()}
    return point.constant, point.plan.key, tuple(sorted(chosen.items())), point.flops, point.bytes


def _mean_point(rows: Sequence[Point]) -> Point:
    counting = on_calm_cores(rows)
    return replace(counting[0], seconds=mean_timing([row.seconds for row in counting]))


def _noise_of(pooled: Sequence[Profile]) -> dict[str, float | None]:
    """The means over the calibrations of the device that fared worst: calm ones of another tell nothing of its times.
    Only a CPU's plans have threads, and only a device is one that others compute on beside the cores."""
    devices = [{plan[0] for plan in _plans_of(each)} for each in pooled]
    found: dict[str, float | None] = {}
    for name in dict.fromkeys(name for each in pooled for name in each.noise):
        by_device: dict[object, list[float]] = defaultdict(list)
        for each, mine in zip(pooled, devices, strict=True):
            if (value := each.noise.get(name)) is not None:
                for device in _found_on(name, mine):
                    by_device[device].append(value)
        found[name] = rounded(max(map(fmean, by_device.values()))) if by_device else None
    return found


def _with_slow_fraction(found: Profile, pooled: Sequence[Profile]) -> Profile:
    """Of what networks ran, as much met slow cores alone in all of them: where it is known of each."""
    if found.noise.get("slow_fraction") is None or not all(map(tells_which_are_reckoned, pooled)):
        return found
    rows: tuple[NetworkPoint | Context, ...] = (*found.networks, *found.contexts)
    slow = rounded(fmean(row.reckoned for row in rows if row.plan.is_cpu))
    return replace(found, noise={**found.noise, "slow_fraction": slow})


def _found_on(name: str, devices: set[object]) -> set[object]:
    """Whose plans a figure of noise tells of."""
    if name in OF_THREADS:
        return devices & {"cpu"}
    return devices - {"cpu"} if name in OF_DEVICES else devices


def _with_its_cards(profile: Profile, calibrations: Sequence[Profile]) -> Profile:
    """With what is known of each card that it has plans for: from the newest calibration the cards may have been
    hidden, or torch could not say which it can use."""
    hardware, cards = profile.hardware or MachineFacts(), cards_told(calibrations)
    held = {str(plan[0]) for plan in _plans_of(profile)} | profile.like.keys()
    lacking = held & cards.keys() - {card.device for card in hardware.accelerators}
    told = [cards[card.device] for card in hardware.accelerators] + [cards[device] for device in sorted(lacking)]
    if tuple(told) == hardware.accelerators:
        return profile
    whole = (each.machine for each in calibrations if lacking <= cards_told([each]).keys())
    machine = next(whole, profile.machine) if lacking else profile.machine
    return replace(profile, machine=machine, hardware=replace(hardware, accelerators=tuple(told)))


def _quickest(paces: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """What a calibration among neighbours read is theirs."""
    threads = sorted({threads for each in paces for threads in each})
    return {count: min(each[count] for each in paces if count in each) for count in threads}


def _likenesses(pooled: Sequence[Profile]) -> dict[str, str]:
    """Of devices that no calibration measured; the newest one's word on each counts."""
    measured = {plan[0] for each in pooled for plan in _plans_of(each)}
    merged: dict[str, str] = {}
    for each in reversed(pooled):
        merged |= each.like
    return {device: other for device, other in merged.items() if device not in measured and other in measured}


def _merged(by_device: Sequence[Mapping[str, Figure] | None]) -> dict[str, Figure] | None:
    """Newest first, whose word counts."""
    merged: dict[str, Figure] = {}
    for each in reversed(by_device):
        merged |= each or {}
    return merged or None
