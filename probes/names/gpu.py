"""What a card's marketing name says, without owning the card. Exact or unknown, never fuzzy.

The knowledge lies in the tables `gpus_*.toml` (gpu_table.py says how a row reads); a new card is one row there.
"""

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any

from probes.bounds import MAX_SUGGESTIONS
from probes.names.gpu_meaning import explain_suffix, explain_tier
from probes.names.gpu_scheme import split_name
from probes.names.gpu_spelling import MAX_NAME_CHARACTERS, make_key, split_memory, split_vendor
from probes.names.gpu_table import GIBIBYTE, GIGABYTE, TABLES, Card, load_table

ALSO_LAPTOP = "NVIDIA sold a laptop chip under this very name as well: its speed differs from the desktop's."


@dataclass(frozen=True, slots=True)
class GpuName:
    """What is known of every card of this name."""

    vendor: str
    """NVIDIA, AMD, Intel or Apple."""
    name: str
    """As its vendor writes it; with the memory's size where several were sold and the name says which."""
    generation: str
    """As GeForce RTX 30."""
    architecture: str | None
    """Of the chip, as Ampere."""
    tier: str | None
    """Its place within the generation, as 80."""
    tier_meaning: str
    """What the tier is good for when training, in a sentence."""
    suffix: str | None
    """What stands behind the tier, as Ti; None: nothing does."""
    suffix_meaning: str | None
    """What the suffix means, in a sentence; None: there is none."""
    segment: str
    """consumer, workstation, data-center, laptop, embedded or integrated."""
    memory_total_bytes: int | None
    """Of one GPU as torch sees it, as sold; drivers report slightly less."""
    memory_bandwidth_bytes_per_second: float | None
    """By the data sheet."""
    compute_capability: str | None
    """Of NVIDIA's, as 8.6."""
    unified_memory: bool | None
    """Its memory is the machine's own."""
    gpus: int
    """On one board; torch sees each as a device of its own."""
    source: str
    """Where this is published."""
    notes: tuple[str, ...] = ()
    """What else there is to know of cards of this name, in sentences."""
    reasons: dict[str, str] = field(default_factory=dict)
    """Why a field is None, by the field's name."""

    def to_json(self) -> dict[str, Any]:
        """The document of `GET /gpus/{name}`."""
        return asdict(self)


def parse_gpu_name(name: str) -> GpuName | None:
    """What the name says of the card, or None where it is not exactly a known name.

    Case, trademark signs, hyphens and the vendor in front do not matter (`RTX 3080 Ti`, `NVIDIA GeForce RTX 3080 Ti`).
    A memory size in the name (`GTX 1060 6GB`) must be one that the card was sold with.
    """
    if len(name) > MAX_NAME_CHARACTERS:
        return None
    vendor, key = split_vendor(name)
    card = _find_card(key, vendor)
    if card is not None:
        return _describe(card, card.memory_gib[0] if len(card.memory_gib) == 1 else None)
    sized = split_memory(key)
    if sized is None:
        return None
    card, size = _find_card(sized[0], vendor), float(sized[1])
    return _describe(card, size) if card and card.gpus == 1 and size in card.memory_gib else None


def list_gpu_names() -> tuple[str, ...]:
    """The canonical name of every card in the tables, in their order."""
    return tuple(_full_name(card) for table in TABLES for card in load_table(table))


def near_names(name: str) -> tuple[str, ...]:
    """Known names that look like an unknown one, best first, to be offered and never to be taken for it."""
    _, key = split_vendor(name[:MAX_NAME_CHARACTERS])
    names = _names_by_key()
    number = re.search(r"\d{3,4}", key)
    same_number = [known for known in names if number and number.group() in known]
    import difflib  # where a name is unknown, not where a machine is read

    near = difflib.get_close_matches(key, same_number, MAX_SUGGESTIONS, cutoff=0.0)
    near += difflib.get_close_matches(key, names, MAX_SUGGESTIONS, cutoff=0.6)
    return tuple(dict.fromkeys(names[known] for known in near))[:MAX_SUGGESTIONS]


def _find_card(key: str, vendor: str | None) -> Card | None:
    for table in TABLES:
        card = _index(table).get(key)
        if card is not None and vendor in (card.vendor, None) and not (card.vendor_required and vendor is None):
            return card
    return None


@cache
def _index(table: str) -> dict[str, Card]:
    return {key: card for card in load_table(table) for key in spellings(card)}


def spellings(card: Card) -> Iterator[str]:
    """The keys of a card: its name and aliases, each also without its optional words and with a driver's ending."""
    for name in (card.name, *card.aliases):
        for key in _shortened(make_key(name), card.optional):
            yield key
            yield from (f"{key} {ending.lower()}" for ending in card.endings)


def _shortened(key: str, optional: tuple[str, ...]) -> Iterator[str]:
    yield key
    for word in optional:
        key = key.removeprefix(f"{word.lower()} ")
        if not key[0].isdigit():  # a bare "840M" is a GeForce as well as a Radeon
            yield key


@cache
def _names_by_key() -> dict[str, str]:
    cards = (card for table in TABLES for card in load_table(table))
    return {key: _full_name(card) for card in cards for key in _shortened(make_key(card.name), card.optional)}


def _full_name(card: Card) -> str:
    return f"{card.vendor} {card.name}"


def _describe(card: Card, size: float | None) -> GpuName:
    tier, suffix = split_name(card.name, card.scheme)
    known: dict[str, Any] = {
        "architecture": card.architecture,
        "tier": tier,
        "memory_total_bytes": int(size * GIBIBYTE) if size is not None and card.gpus == 1 else None,
        "memory_bandwidth_bytes_per_second": _bandwidth(card, size),
        "compute_capability": card.compute_capability,
        "unified_memory": card.unified_memory,
    }
    return GpuName(
        vendor=card.vendor,
        name=_sized_name(card, size),
        generation=card.generation,
        tier_meaning=explain_tier(card.scheme, tier, card.segment),
        suffix=suffix,
        suffix_meaning=explain_suffix(card.vendor, suffix),
        segment=card.segment,
        gpus=card.gpus,
        source=card.source,
        notes=_notes(card),
        reasons={key: _why_unknown(card, key) for key, value in known.items() if value is None},
        **known,
    )


def _bandwidth(card: Card, size: float | None) -> float | None:
    """Bytes per second: the one figure of all sizes, or that of this size."""
    if len(card.bandwidth_gb) == 1:
        return float(round(card.bandwidth_gb[0] * GIGABYTE))
    if card.bandwidth_gb and size is not None:
        return float(round(card.bandwidth_gb[card.memory_gib.index(size)] * GIGABYTE))
    return None


def _sized_name(card: Card, size: float | None) -> str:
    """The canonical name, with the memory size where the name alone leaves it open."""
    if size is None or len(card.memory_gib) < 2:
        return _full_name(card)
    head, laptop, tail = _full_name(card).partition(" Laptop GPU")
    return f"{head} {size:g}GB{laptop}{tail}"


def _notes(card: Card) -> tuple[str, ...]:
    if not card.also_laptop:
        return card.notes
    return (*card.notes, ALSO_LAPTOP)


def _why_unknown(card: Card, key: str) -> str:
    """Why a field is null: the table's own reason, or what follows from the row."""
    written = dict(card.unknown).get(key)
    if written is not None:
        return written
    if key == "tier":
        return "its name carries no tier number"
    if key == "compute_capability":
        return "a measure of NVIDIA's cards only"
    if key == "unified_memory":
        return "it has memory of its own and shares the processor's as well"
    return _why_no_memory(card) if key == "memory_total_bytes" else _why_no_bandwidth(card)


def _why_no_memory(card: Card) -> str:
    sizes = " or ".join(f"{size:g} GB" for size in card.memory_gib)
    if card.gpus > 1:
        return f"{card.gpus} GPUs share one board, each with {sizes}: torch sees {card.gpus} devices"
    if card.memory_gib:
        return f"sold with {sizes} under this name"
    if card.unified_memory:
        return "it uses the machine's own memory, whose size the name does not say"
    return "the name does not settle it, or no source was sure enough"


def _why_no_bandwidth(card: Card) -> str:
    if card.segment == "laptop":
        return "the maker of the laptop chooses the memory clock"
    if card.also_laptop:
        return "desktop cards and laptop chips of this name differ"
    return "no single data-sheet figure holds for every card of this name"
