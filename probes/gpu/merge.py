"""One list of accelerators from what the bus shows and what a driver tells, by PCI address."""

from collections.abc import Sequence
from dataclasses import fields, replace

from probes.hardware import Accelerator


def merge_accelerators(on_bus: Sequence[Accelerator], told: Sequence[Accelerator]) -> tuple[Accelerator, ...]:
    """The driver's word first, the bus's where it is silent; cards that only one of them knows are kept.

    A card that the driver lost has no address to find it by: when as many cards of its vendor are left on the bus as
    were lost, they are the same ones.
    """
    by_address = {card.pci_address: card for card in on_bus if card.pci_address}
    matched = [_fill(card, by_address.get(card.pci_address)) for card in told if card.pci_address]
    taken = {card.pci_address for card in matched}
    rest = [card for card in on_bus if card.pci_address not in taken]
    lost = [card for card in told if not card.pci_address]
    return (*matched, *_join_lost(rest, lost))


def _fill(card: Accelerator, other: Accelerator | None) -> Accelerator:
    """Fields that `card` lacks, from `other`."""
    if other is None:
        return card
    missing = {field.name: getattr(other, field.name) for field in fields(card) if getattr(card, field.name) is None}
    return replace(card, **missing)


def _join_lost(rest: list[Accelerator], lost: list[Accelerator]) -> list[Accelerator]:
    candidates = [card for card in rest if any(card.vendor == gone.vendor for gone in lost)]
    if not lost or len(candidates) != len(lost):
        return [*rest, *lost]
    reasons = dict(zip((card.id for card in candidates), lost, strict=True))
    return [
        replace(card, usable=False, why_not=reasons[card.id].why_not) if card.id in reasons else card for card in rest
    ]
