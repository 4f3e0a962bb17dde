"""A card's name from its PCI ids, for cards whose driver is not loaded or does not tell.

First our own table (`pci_names.toml`, from the vendors' lists), then libdrm's list of AMD's cards, then the public
database of PCI ids, where the machine has them. A name is exact or it is None.
"""

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from probes.gpu.kept import Kept
from probes.reading import Root, clean

_AMDGPU_LISTS = (
    "/usr/share/libdrm/amdgpu.ids",
    "/opt/amdgpu/share/libdrm/amdgpu.ids",
    "/opt/rocm/share/libdrm/amdgpu.ids",
)
_DATABASES = (
    "/usr/share/hwdata/pci.ids",
    "/usr/share/misc/pci.ids",
    "/usr/share/pci.ids",
    "/var/lib/pciutils/pci.ids",
)
_MAX_BYTES = 8 << 20  # the database has 1.5 MB
_AMD, _NVIDIA, _INTEL = 0x1002, 0x10DE, 0x8086
_BRANDS = {_AMD: "AMD", _NVIDIA: "NVIDIA", _INTEL: "Intel"}


@dataclass(frozen=True, slots=True)
class Ids:
    vendor: int
    device: int
    revision: int | None = None


_kept: Kept[str | None] = Kept()  # a survey a second must not read the database each time


def name_card(root: Root, ids: Ids) -> str | None:
    own = _own_table()
    found = own.get((ids.vendor, ids.device, ids.revision)) or own.get((ids.vendor, ids.device, None))
    if found is not None:
        return found
    return _kept.get((root.path, ids), lambda: _look_up(root, ids), lambda name: name is not None)


def _look_up(root: Root, ids: Ids) -> str | None:
    if ids.vendor == _AMD:
        for path in _AMDGPU_LISTS:
            if name := parse_amdgpu_list(root.read(path, _MAX_BYTES) or "", ids):
                return name
    databases = (root.read(path, _MAX_BYTES) for path in _DATABASES)
    return next((name for text in databases if text and (name := parse_database(text, ids))), None)


def parse_amdgpu_list(text: str, ids: Ids) -> str | None:
    """`744C,<tab>C8,<tab>AMD Radeon RX 7900 XTX`; None where two names stand for one chip."""
    if ids.revision is None:
        return None
    names = re.findall(rf"^{ids.device:04X},\s*{ids.revision:02X},\s*(.+)$", text, re.MULTILINE | re.IGNORECASE)
    return clean(names[0]) if len(set(names)) == 1 else None


def parse_database(text: str, ids: Ids) -> str | None:
    """The marketing name of a device: what stands in brackets, as in `GA102 [GeForce RTX 3080 Ti]`.

    Where the brackets list several cards that share a chip, all of them stand in the name, and no table knows it.
    """
    start = re.search(rf"^{ids.vendor:04x}\s", text, re.MULTILINE)
    if start is None:
        return None
    end = re.search(r"^[0-9a-fC]", text[start.end() :], re.MULTILINE)
    section = text[start.end() :][: end.start() if end else None]
    line = re.search(rf"^\t{ids.device:04x}\s+(.+)$", section, re.MULTILINE)
    inside = re.search(r"\[([^\[\]]+)\]\s*(?:\(.*\))?\s*$", line[1]) if line else None
    name = clean(inside[1]) if inside else None
    return with_brand(name, ids.vendor) if name else None


def with_brand(name: str, vendor: int) -> str:
    """The vendor in front, and a laptop's chip as NVIDIA's driver calls it: `RTX 4060 Laptop GPU`."""
    if vendor == _NVIDIA:
        name = re.sub(r"(RTX [345]0\d0(?: Ti)?) (?:Max-Q / )?Mobile$", r"\1 Laptop GPU", name)
    brand = _BRANDS.get(vendor, "")
    return name if name.upper().startswith(brand.upper()) else f"{brand} {name}"


@cache
def _own_table() -> dict[tuple[int, int, int | None], str]:
    text = Path(__file__).with_name("pci_names.toml").read_text("utf-8")
    return {
        (family["vendor"], *_parse_ids(row)): name
        for family in tomllib.loads(text)["family"]
        for name, rows in family["cards"].items()
        for row in rows
    }


def _parse_ids(row: str) -> tuple[int, int | None]:
    """`56A0`, or `744C:C8` where the revision tells cards apart."""
    device, _, revision = row.partition(":")
    return int(device, 16), int(revision, 16) if revision else None
