"""Calibrations without what they tell of another kind of card than the newest that tells of a device.

A device's name is a place among the cards that a process was shown: with others hidden, or moved to other slots, it is
another card's, and a mean of two kinds of card is nobody's time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from probes.machine_facts import SAME_MEMORY, DeviceFacts
from probes.profile import Profile

# What tells one kind of card from another, where it is told.
_KIND = ("name", "memory_total_bytes", "compute_capability")


def of_same_cards(calibrations: Sequence[Profile]) -> list[Profile]:
    """calibrations: newest first. One that does not say what cards it met is left as it is."""
    cards = cards_told(calibrations)
    return [_without(each, _strange(each, cards)) for each in calibrations]


def cards_told(calibrations: Sequence[Profile]) -> dict[str, DeviceFacts]:
    """By device the card that the newest calibration which tells of it met. calibrations: newest first."""
    cards: dict[str, DeviceFacts] = {}
    for each in calibrations:
        for device, card in _cards_of(each).items():
            told = cards.get(device, card)
            cards[device] = _with_what_it_lacks(told, card) if _is_one_kind(card, told) else told
    return cards


def _cards_of(profile: Profile) -> dict[str, DeviceFacts]:
    return {} if profile.hardware is None else {card.device: card for card in profile.hardware.accelerators}


def _with_what_it_lacks(newer: DeviceFacts, older: DeviceFacts) -> DeviceFacts:
    """Of one kind as far as both tell: else what tells less would make one kind of all that it does not tell apart."""
    missing = {name: getattr(older, name) for name in _KIND if getattr(newer, name) is None}
    return replace(newer, **missing)


def _strange(profile: Profile, cards: Mapping[str, DeviceFacts]) -> set[str]:
    """Its devices that are other cards by now."""
    return {device for device, card in _cards_of(profile).items() if not _is_one_kind(card, cards[device])}


def _is_one_kind(one: DeviceFacts, other: DeviceFacts) -> bool:
    """As far as both tell."""
    pairs = ((one.name, other.name), (one.compute_capability, other.compute_capability))
    if any(mine is not None and its is not None and mine != its for mine, its in pairs):
        return False
    size, its_size = one.memory_total_bytes, other.memory_total_bytes
    return size is None or its_size is None or abs(size - its_size) <= SAME_MEMORY * max(size, its_size)


def _without(profile: Profile, devices: Collection[str]) -> Profile:
    if not devices:
        return profile

    def kept(by_device: Mapping[str, Any] | None) -> dict[str, Any] | None:
        return None if by_device is None else {name: it for name, it in by_device.items() if name not in devices}

    return replace(
        profile,
        points=tuple(point for point in profile.points if point.plan.device not in devices),
        networks=tuple(point for point in profile.networks if point.plan.device not in devices),
        contexts=tuple(context for context in profile.contexts if context.plan.device not in devices),
        context_bytes=kept(profile.context_bytes),
        workspace_bytes=kept(profile.workspace_bytes),
        start_seconds=kept(profile.start_seconds),
        like={name: other for name, other in profile.like.items() if not {name, other} & {*devices}},
    )
