"""The tables of cards: `gpus_*.toml`, one row a card, beside this module.

A table is a list of families. A family gives what its cards have in common and a source; a row gives what is its own.
Rows may repeat any of a family's fields; what stands in neither is unknown. Every field is listed in `FIELDS`, so that
a misspelt one is refused here instead of being ignored.
"""

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

# In the order in which a name is looked for: what people train on most comes first.
TABLES = (
    "gpus_geforce.toml",
    "gpus_geforce_laptop.toml",
    "gpus_nvidia_datacenter.toml",
    "gpus_nvidia_workstation.toml",
    "gpus_amd.toml",
    "gpus_intel.toml",
    "gpus_apple.toml",
)
SEGMENTS = ("consumer", "workstation", "data-center", "laptop", "embedded", "integrated")
GIBIBYTE = 2**30  # a "24 GB" card carries 24 * 2**30 bytes: vendors count memory chips in powers of two
GIGABYTE = 10**9  # bandwidth is bits per second times pins, in powers of ten

FIELDS: dict[str, type | tuple[type, ...]] = {
    "vendor": str,
    "generation": str,
    "architecture": str,
    "compute_capability": str,
    "segment": str,
    "scheme": str,  # how its name is made: see gpu_scheme.py
    "optional": list,  # words at the start of the name that people leave out, in order
    "endings": list,  # words that drivers put behind the name
    "vendor_required": bool,  # without the vendor's name in front the name could be another vendor's
    "aliases": list,
    "memory": (int, float, list),  # 2**30 bytes, of one GPU; a list where the name was sold with several sizes
    "bandwidth": (int, float, list),  # 1e9 bytes per second; one figure, or one for each size
    "gpus": int,  # on one board
    "unified_memory": (bool, str),  # "unknown" where neither yes nor no is the whole truth
    "also_laptop": bool,  # laptop chips were sold under the very same name
    "note": str,
    "unknown": dict,  # field of GpuName -> why it is null
    "source": str,
}


class InvalidTable(ValueError):
    """A row of a table beside this module is malformed; the message names the row and the field."""


@dataclass(frozen=True, slots=True)
class Card:
    """One row. Memory and bandwidth in the table's units: one entry for each size that the name was sold with."""

    name: str  # without the vendor
    vendor: str
    generation: str
    segment: str
    scheme: str
    source: str
    architecture: str | None = None
    compute_capability: str | None = None
    optional: tuple[str, ...] = ()
    endings: tuple[str, ...] = ()
    vendor_required: bool = False
    aliases: tuple[str, ...] = ()
    memory_gib: tuple[float, ...] = ()
    bandwidth_gb: tuple[float, ...] = ()
    gpus: int = 1
    unified_memory: bool | None = False
    also_laptop: bool = False
    notes: tuple[str, ...] = ()
    unknown: tuple[tuple[str, str], ...] = ()


@cache
def load_table(file_name: str) -> tuple[Card, ...]:
    """The cards of one table, in its order. Raises InvalidTable."""
    text = (Path(__file__).parent / file_name).read_text(encoding="utf-8")
    return parse_table(text)


def parse_table(text: str) -> tuple[Card, ...]:
    """The cards in the text of a table. Raises InvalidTable; each card's name is unique within its family by TOML."""
    cards: list[Card] = []
    for family in tomllib.loads(text)["family"]:
        common = {key: value for key, value in family.items() if key != "cards"}
        cards.extend(_parse_card(name, common, row) for name, row in family["cards"].items())
    return tuple(cards)


def _parse_card(name: str, common: dict[str, Any], row: dict[str, Any]) -> Card:
    fields = {**common, **row}
    _check_fields(name, fields)
    unknown = fields.get("unknown", {})
    return Card(
        name=name,
        vendor=fields["vendor"],
        generation=fields["generation"],
        segment=fields["segment"],
        scheme=fields["scheme"],
        source=fields["source"],
        architecture=None if "architecture" in unknown else fields.get("architecture"),
        compute_capability=None if "compute_capability" in unknown else fields.get("compute_capability"),
        optional=tuple(fields.get("optional", ())),
        endings=tuple(fields.get("endings", ())),
        vendor_required=fields.get("vendor_required", False),
        aliases=tuple(fields.get("aliases", ())),
        memory_gib=_as_tuple(fields.get("memory")),
        bandwidth_gb=_as_tuple(fields.get("bandwidth")),
        gpus=fields.get("gpus", 1),
        unified_memory=None if fields.get("unified_memory") == "unknown" else fields.get("unified_memory", False),
        also_laptop=fields.get("also_laptop", False),
        notes=tuple(source["note"] for source in (row, common) if "note" in source),
        unknown=tuple(unknown.items()),
    )


def _check_fields(name: str, fields: dict[str, Any]) -> None:
    for key in ("vendor", "generation", "segment", "scheme", "source"):
        if key not in fields:
            raise InvalidTable(f"The card {name!r} lacks the field {key!r}: give it to the row or to its family.")
    for key, value in fields.items():
        if key not in FIELDS or not isinstance(value, FIELDS[key]):
            raise InvalidTable(f"The card {name!r} has a field {key!r} that gpu_table.FIELDS does not allow.")
    if fields["segment"] not in SEGMENTS:
        raise InvalidTable(f"The card {name!r} has the segment {fields['segment']!r}; it must be one of {SEGMENTS}.")
    if "architecture" not in fields and "architecture" not in fields.get("unknown", {}):
        raise InvalidTable(f"The card {name!r} has neither an architecture nor a reason why it is unknown.")


def _as_tuple(value: float | list[float] | None) -> tuple[float, ...]:
    if value is None:
        return ()
    return tuple(value) if isinstance(value, list) else (value,)
