"""Cards that are alike: one of them is calibrated or measured, and its times are the others', until these ran.

Eight of a kind would take a calibration eight times as long, and each would be measured with what the one before it
left of the time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from app.advisor.explanations.busy_device import is_busy
from app.advisor.explanations.sick_device import sick_devices
from app.advisor.plans import cuda_accelerators
from probes.hardware import Accelerator, Survey
from probes.measurement import Measurement
from probes.profile import Profile
from probes.workload.description import Plan


def devices_to_calibrate(survey: Survey) -> list[str]:
    """The CPU, and of the cards that torch can use one of each kind: the first that nothing grave is found of and that
    nobody computes on, else the first that nothing grave is found of, else the first."""
    return ["cpu", *_chosen(cuda_accelerators(survey), sick_devices(survey))]


def free_devices(survey: Survey) -> list[str]:
    """Of these the ones that nobody computes on."""
    cards = {card.torch_device: card for card in cuda_accelerators(survey)}
    return [device for device in devices_to_calibrate(survey) if device == "cpu" or not is_busy(cards[device])]


def like_devices(survey: Survey, measured: Sequence[str]) -> dict[str, str]:
    """Of the devices that were not measured, the one that was and is alike. No entry where none is."""
    cards, sick = cuda_accelerators(survey), sick_devices(survey)
    well_first = sorted(cards, key=lambda card: card.torch_device in sick)
    stand_ins = {_kind(card): str(card.torch_device) for card in reversed(well_first) if card.torch_device in measured}
    return {
        str(card.torch_device): stand_ins[_kind(card)]
        for card in cards
        if card.torch_device not in measured and _kind(card) in stand_ins
    }


def measured_plan(profile: Profile, plan: Plan) -> Plan:
    """The plan whose figures in the profile are this one's."""
    device = profile.like.get(plan.device)
    return plan if device is None else replace(plan, device=device)


def same_kinds(survey: Survey) -> Mapping[str, Hashable]:
    """By device: what cards that are alike have in common."""
    return {str(card.torch_device): _kind(card) for card in cuda_accelerators(survey)}


def kinds_elsewhere(machine: Survey | None, profile: Profile) -> dict[str, Hashable]:
    """The same of another machine, as far as its profile tells of it: cards that it tells as another are alike, too."""
    kinds = dict(same_kinds(machine)) if machine is not None else {}
    return kinds | {device: kinds.get(other, other) for device, other in profile.like.items()}


def one_of_each_kind(survey: Survey, plans: Sequence[Plan], asked: Sequence[str]) -> list[Plan]:
    """Of these plans those to measure: of one plan on cards that are alike, the one on a card that is known to be free;
    none on a card of which something grave is found, unless it is of all that are alike. On each of them where nobody
    knows: a step beside others tells nothing of the twin. asked: devices that were asked for; a card's own name asks
    for that card."""
    kinds, groups = same_kinds(survey), defaultdict[Hashable, list[Plan]](list)
    for plan in plans:
        groups[on_its_kind(plan, kinds)].append(plan)
    chosen = {plan.key for alike in groups.values() for plan in _telling(survey, alike)}
    return [plan for plan in plans if plan.key in chosen or plan.device in asked]


def _telling(survey: Survey, alike: Sequence[Plan]) -> Sequence[Plan]:
    """Of one plan on cards that are alike."""
    sick = sick_devices(survey)
    alike = [plan for plan in alike if plan.device not in sick] or alike
    if len(alike) < 2:
        return alike
    cards = {card.torch_device: card for card in survey.accelerators}
    known = [plan for plan in alike if cards[plan.device].utilization_percent is not None]
    free = [plan for plan in known if not is_busy(cards[plan.device])]
    return free[:1] or (alike[:1] if len(known) == len(alike) else alike)


def on_its_kind(plan: Plan, kinds: Mapping[str, Hashable]) -> Hashable:
    """The same for one plan on cards that are alike. kinds: same_kinds."""
    device, *others = plan.key
    return (kinds.get(device, device), *others)


def rows_of_like_cards(
    rows: Mapping[tuple[object, ...], Sequence[Measurement]], plans: Sequence[Plan], kinds: Mapping[str, Hashable]
) -> dict[tuple[object, ...], list[Measurement]]:
    """By the plan's key, of those that have any: rows of the same plan on other cards that are alike. Without what
    failed there, which may be the card's own trouble or its want of time, and without refusals of the moment. rows: by
    the plan's key. kinds: same_kinds.
    """
    groups = defaultdict[Hashable, list[Measurement]](list)
    for row in chain.from_iterable(rows.values()):
        if row.outcome != "failed" and not row.momentary:
            groups[on_its_kind(row.plan, kinds)].append(row)
    alike = {plan.key: groups.get(on_its_kind(plan, kinds), ()) for plan in plans}
    others = {key: [row for row in found if row.plan.key != key] for key, found in alike.items()}
    return {key: found for key, found in others.items() if found}


def rows_to_borrow(
    rows: Mapping[tuple[object, ...], Sequence[Measurement]], plans: Sequence[Plan], kinds: Mapping[str, Hashable]
) -> dict[tuple[object, ...], list[Measurement]]:
    """By the plan's key, of those that have any: what the same plan did on other cards that are alike, as if it were
    its own, the newest last. As of rows_of_like_cards, and without what met somebody else on its card, who is nothing
    to the others."""
    if not kinds:
        return {}
    alike = rows_of_like_cards(rows, plans, kinds)
    found = {
        plan.key: [replace(row, plan=plan) for row in alike.get(plan.key, ()) if not row.met_others] for plan in plans
    }
    return {key: sorted(each, key=lambda row: row.measured_at or 0.0) for key, each in found.items() if each}


def unlike_plans(plans: Sequence[Plan], kinds: Mapping[str, Hashable], ranked: Sequence[Plan]) -> list[Plan]:
    """Each on one card of a kind: as it stands in `ranked`, else on the first. kinds: same_kinds. ranked: each on the
    card of which its time is best known (app.advisor.ranking.Ranking.unlike)."""
    here = {plan.key for plan in plans}
    chosen: dict[Hashable, Hashable] = {}
    for plan in (*ranked, *plans):
        if plan.key in here:
            chosen.setdefault(on_its_kind(plan, kinds), plan.key)
    return [plan for plan in plans if chosen[on_its_kind(plan, kinds)] == plan.key]


def _chosen(cards: Sequence[Accelerator], sick: Container[str]) -> list[str]:
    chosen: dict[Hashable, Accelerator] = {}
    for card in sorted(cards, key=lambda card: (str(card.torch_device) in sick, is_busy(card))):
        chosen.setdefault(_kind(card), card)
    names = {card.torch_device for card in chosen.values()}
    return [str(card.torch_device) for card in cards if card.torch_device in names]


def _kind(card: Accelerator) -> Hashable:
    """What makes two of them equally fast: the link is what copies take. One that says too little is like no other."""
    told = (card.name, card.memory_total_bytes, card.compute_capability or card.gfx_target)
    if None in told:
        return card.torch_device
    return (*told, card.multiprocessors, card.power_limit_watts, _link(card))


def _link(card: Accelerator) -> Hashable:
    """Lanes are what it is wired with; an idle link's generation is lower than what it can."""
    return card.pcie_generation_maximum, card.pcie_lanes, card.pcie_lanes_slot
