"""What a profile keeps of the machine it was measured on: enough to judge whether a model fits there.

Anonymous on purpose, since profiles travel: no host name, no serial number, no UUID.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from probes import bounds
from probes.checked import (
    check_count,
    check_flag,
    check_list,
    check_number,
    check_object,
    check_text,
    make_printable,
    member,
)
from probes.figures import format_gib
from probes.hardware import Accelerator, Memory, Survey, Torch

MAX_BYTES = 10**17
SAME_MEMORY = 0.02  # so much more or less is the same memory
# cpu, cuda:0, xpu:1, mps: torch's own names.
DEVICE_PATTERN = r"[a-z]{2,16}(:\d{1,4})?"


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """An accelerator that torch can use."""

    device: str
    """torch's name for it, as cuda:0."""
    name: str | None = None
    """Its own name; None: not known."""
    memory_total_bytes: int | None = None
    """All of it; None: not known."""
    compute_capability: str | None = None
    """Of NVIDIA's, as 8.6; None of others."""
    unified_memory: bool = False
    """What it has is what the machine has (shares_all_memory); False of a pool that a driver set apart, whose size
    stands here as a card's own."""


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """What a machine was when it was measured."""

    cpu: str | None = None
    """The processor's name; None: not known."""
    physical_cores: int | None = None
    """Online; None: not known."""
    usable_cores: float | None = None
    """By affinity and cgroup quota; None: not known."""
    memory_bytes: int | None = None
    """What one process may take of an idle machine: its memory, or its limit where that is less; None: not known."""
    accelerators: tuple[DeviceFacts, ...] = ()
    """Those that torch could use."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: Any, place: str = "hardware") -> MachineFacts:
        """Raises Refused."""
        row = check_object(document, place)
        cards = check_list(row.get("accelerators", ()), f"{place}.accelerators", bounds.MAX_DEVICES)
        return cls(
            cpu=_text(row, "cpu", place),
            physical_cores=_count(row, "physical_cores", place, bounds.MAX_THREADS),
            usable_cores=_cores(row.get("usable_cores"), place),
            memory_bytes=_count(row, "memory_bytes", place, MAX_BYTES),
            accelerators=tuple(_device(card, f"{place}.accelerators[{index}]") for index, card in enumerate(cards)),
        )


def _device(document: Any, place: str) -> DeviceFacts:
    row = check_object(document, place)
    device = check_text(member(row, "device", place), f"{place}.device", bounds.MAX_NAME_CHARACTERS, DEVICE_PATTERN)
    return DeviceFacts(
        device=device,
        name=_text(row, "name", place),
        memory_total_bytes=_count(row, "memory_total_bytes", place, MAX_BYTES),
        compute_capability=_text(row, "compute_capability", place, r"\d{1,3}\.\d{1,3}"),
        unified_memory=check_flag(row.get("unified_memory", False), f"{place}.unified_memory"),
    )


def _text(row: dict[str, Any], name: str, place: str, pattern: str | None = None) -> str | None:
    value = row.get(name)
    return None if value is None else check_text(value, f"{place}.{name}", bounds.MAX_NAME_CHARACTERS, pattern)


def _count(row: dict[str, Any], name: str, place: str, most: int) -> int | None:
    value = row.get(name)
    return None if value is None else check_count(value, f"{place}.{name}", 1, most)


def _cores(value: Any, place: str) -> float | None:
    return None if value is None else check_number(value, f"{place}.usable_cores", 0.01, bounds.MAX_THREADS)


def facts_of(survey: Survey) -> MachineFacts:
    """What of a survey goes into a profile."""
    memory = survey.memory
    sizes = [size for size in (memory.total_bytes, memory.limit_bytes, memory.process_limit_bytes) if size]
    # A limit that could not be understood may be any: all memory would be a wrong answer.
    unknown = memory.usable_bytes is None and memory.available_bytes is not None
    return MachineFacts(
        cpu=make_printable(survey.cpu.name) if survey.cpu.name else None,
        physical_cores=survey.cpu.physical_cores,
        usable_cores=survey.cpu.usable_cores,
        memory_bytes=None if unknown else min(sizes, default=None),
        accelerators=tuple(
            DeviceFacts(
                str(card.torch_device),
                make_printable(card.name) if card.name else None,
                card.memory_total_bytes,
                card.compute_capability,
                shares_all_memory(card, memory),
            )
            for card in survey.accelerators
            if card.usable and card.torch_device
        ),
    )


def shares_all_memory(card: Accelerator, memory: Memory) -> bool:
    """Whether the machine's memory is the card's. AMD's driver may tell of a pool: what was set aside for the card, and
    the machine lacks then, or the share that the card may take of it."""
    has_pool = card.vendor == "AMD" and card.memory_total_bytes not in (None, memory.total_bytes)
    return bool(card.unified_memory) and not has_pool


def may_lack_cards(torch: Torch | None, cards: Sequence[Accelerator]) -> bool:
    """Whether torch may list cards that nothing else shows, and was not heard yet: that of a build for ROCm where none
    of AMD's is seen, as under WSL."""
    is_silent = torch is not None and torch.hip_version is not None and torch.cuda_available is None
    return is_silent and all(card.vendor != "AMD" for card in cards)


def changes_since(before: MachineFacts, survey: Survey) -> tuple[str, ...]:
    """Where the machine differs from what it was, in words; what either does not know is no difference. Of some cards
    only torch can tell whether they are used, and a survey may come before it was asked."""
    now = facts_of(survey)
    unsure = any(card.usable is None for card in survey.accelerators)
    unsure = unsure or may_lack_cards(survey.software.torch, survey.accelerators)
    pairs = (
        ("processor", before.cpu, now.cpu),
        ("usable cores", _figure(before.usable_cores), _figure(now.usable_cores)),
        ("memory", *_memories(before.memory_bytes, now.memory_bytes)),
        ("accelerators", _named(before), None if unsure else _named(now)),
    )
    return tuple(
        f"{what} {old} then, {new} now"
        for what, old, new in pairs
        if old is not None and new is not None and old != new
    )


def contradictions(claimed: MachineFacts, survey: Survey) -> tuple[str, ...]:
    """Where these are another machine's facts than what is surveyed, in words. Other memory is none, as it stands in no
    fingerprint (docs/decisions/0006). A card that is here and is not used is no difference either: it may be hidden
    from this process (CUDA_VISIBLE_DEVICES), or was from the one that calibrated."""
    now = facts_of(survey)
    here = Counter(make_printable(card.name) if card.name else None for card in survey.accelerators)
    if Counter(card.name for card in claimed.accelerators) <= here:
        claimed = replace(claimed, accelerators=now.accelerators)
    return changes_since(replace(claimed, memory_bytes=None), survey)


def _figure(value: float | None) -> str | None:
    return None if value is None else f"{value:g}"


def _memories(before: int | None, now: int | None) -> tuple[str | None, str | None]:
    """What the system keeps for itself is another amount with each version of it."""
    if before is None or now is None or abs(before - now) <= SAME_MEMORY * max(before, now):
        return None, None
    return format_gib(before), format_gib(now)


def _named(facts: MachineFacts) -> str:
    return ", ".join(sorted(card.name or card.device for card in facts.accelerators)) or "none"
