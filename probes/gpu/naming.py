"""What a card's name adds to what the bus and the driver told of it."""

import re
from dataclasses import fields, replace

from probes.hardware import Accelerator
from probes.names.gpu import ALSO_LAPTOP, GpuName, parse_gpu_name

# Memory is left to the driver: the size on the box is not what a virtual or shared card has.
_FROM_NAME = (
    "generation", "architecture", "tier", "suffix", "tier_meaning", "segment", "compute_capability", "unified_memory",
)  # fmt: skip
# `NVIDIA A40-48Q`, `GRID T4-8C`, `NVIDIA A100-1-5C`: a vGPU's profile (NVIDIA's guide to virtual GPU software).
_VIRTUAL = re.compile(r"(?:NVIDIA |GRID )+(\S.*?)(?:-\d{1,2})?-\d{1,3}[ABCQ]")
_INSTANCE = " MIG "  # `NVIDIA A100-SXM4-40GB MIG 3g.20gb` is a part of the card that its name begins with


def with_name_facts(card: Accelerator) -> Accelerator:
    """Fields that are still None, from the card's marketing name; nothing where the name is not exactly known."""
    known = parse_gpu_name(_whole(card.name)) if card.name else None
    if known is None:
        return card
    silent = {field.name for field in fields(card) if getattr(card, field.name) is None}
    told = {name: getattr(known, name) for name in _FROM_NAME} | {"tier_meaning": _explain_tier(known)}
    return replace(card, **{name: value for name, value in told.items() if name in silent})


def _whole(name: str) -> str:
    """The card that this is a part of, or the name itself."""
    profile = _VIRTUAL.fullmatch(name)
    return f"NVIDIA {profile[1]}" if profile else name.partition(_INSTANCE)[0]


def _explain_tier(known: GpuName) -> str:
    """A laptop's chip may bear the desktop card's very name: whoever reads of the one must know of the other."""
    return f"{known.tier_meaning} {ALSO_LAPTOP}" if ALSO_LAPTOP in known.notes else known.tier_meaning
