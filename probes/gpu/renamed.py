"""Which of torch's names stand for another kind of card than where no card is hidden.

Plans, measurements and profiles bear torch's names, and these count what a process is shown: with
CUDA_VISIBLE_DEVICES=1 the second card is `cuda:0`. What was kept of one kind of card tells nothing of another.
"""

from collections.abc import Mapping, Sequence

from probes.hardware import Accelerator
from probes.machine_facts import SAME_MEMORY

# Whose cards torch calls cuda:N, never both at once; and the drivers under which CUDA, or HIP, has a card. None: a
# machine that does not tell.
_DRIVERS = {"NVIDIA": ("nvidia", None), "AMD": ("amdgpu", None)}
_VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")


def renamed_devices(cards: Sequence[Accelerator]) -> dict[str, Accelerator]:
    """By torch's name the card that bears it, of those that are like it the first in order; only where another kind of
    card bears it as long as none is hidden."""
    found: dict[str, Accelerator] = {}
    for vendor in _DRIVERS:
        own = _own(cards, vendor)
        usual = _in_usual_order(own, vendor)
        for card in own:
            index = _index_of(card)
            if index is not None and index < len(usual) and not is_like(card, usual[index]):
                found[f"cuda:{index}"] = next((other for other in usual if is_like(card, other)), card)
    return found


def may_rename(environment: Mapping[str, str], cards: Sequence[Accelerator]) -> bool:
    """Whether a process with this environment may be shown another kind of card under a name than without."""
    groups = [_own(cards, vendor) for vendor in _DRIVERS]
    are_unlike = any(not is_like(card, own[0]) for own in groups for card in own)
    return are_unlike and any(name in environment for name in _VARIABLES)


def is_like(one: Accelerator, other: Accelerator) -> bool:
    """Whether one's times are the other's as well. Of a card that says too little nobody knows."""
    if one.id == other.id:
        return True
    size, its_size = one.memory_total_bytes, other.memory_total_bytes
    if size is None or its_size is None or _chip(one) is None or one.name is None:
        return False
    # A screen takes a few MB of one of them.
    return _traits(one) == _traits(other) and abs(size - its_size) <= SAME_MEMORY * max(size, its_size)


def _traits(card: Accelerator) -> tuple[object, ...]:
    """With the link that copies take, as far as it stays: an idle one is narrower."""
    return card.name, _chip(card), card.pcie_generation_maximum, card.pcie_lanes_slot


def _chip(card: Accelerator) -> str | None:
    return card.compute_capability or card.gfx_target


def _own(cards: Sequence[Accelerator], vendor: str) -> list[Accelerator]:
    """A vendor's cards that its library may show. Where the library told of some by their UUIDs (a container's), those
    that only the bus tells of are others' to use."""
    own = [card for card in cards if card.vendor == vendor and card.kernel_driver in _DRIVERS[vendor]]
    told = [card for card in own if card.torch_device is not None or card.id.startswith(("GPU-", "MIG-"))]
    return told or own


def _in_usual_order(own: Sequence[Accelerator], vendor: str) -> list[Accelerator]:
    """As the library shows them where nothing is hidden; empty where that is not known.

    CUDA goes by the bus, as it is told here, and with an instance of MIG's it shows the first of these alone (NVIDIA,
    "MIG User Guide", CUDA Device Enumeration). HIP goes by the order in which the kernel found them, most often the
    bus's: not to be wrong where nothing is hidden, that counts where something is.
    """
    instances = [card for card in own if card.parent_id is not None]
    counted = instances or [card for card in own if not card.mig_mode]
    if vendor == "AMD":
        counted = [card for card in own if card.gfx_target is not None]
        if all(card.torch_device is not None for card in counted):
            return []
    return sorted(counted, key=lambda card: card.pci_address or "~")


def _index_of(card: Accelerator) -> int | None:
    kind, _, number = (card.torch_device or "").partition(":")
    return int(number) if kind == "cuda" and number.isascii() and number.isdigit() else None
