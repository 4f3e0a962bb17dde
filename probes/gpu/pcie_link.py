"""A card's PCI Express link: how fast and wide it runs now, at most, and what its slot would allow.

An idle link runs slower than it can. AMD's and Intel's cards carry a switch of their own, whose inner link says
nothing of the slot (Arc even calls it generation 1 with one lane, Syllo/nvtop#344): the link that counts is the one
between the card's outermost bridge and the slot.
"""

import re
from dataclasses import dataclass

from probes.reading import Root

ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_GENERATIONS = {"2.5": 1, "5": 2, "8": 3, "16": 4, "32": 5, "64": 6}  # GT/s a lane, PCI Express base specification
_MOST_LANES = 32
_BRIDGE = 0x0604


@dataclass(frozen=True, slots=True)
class Link:
    """Fields as an Accelerator has them."""

    pcie_generation: int | None = None
    pcie_generation_maximum: int | None = None
    pcie_lanes: int | None = None
    pcie_lanes_maximum: int | None = None
    pcie_lanes_slot: int | None = None


def read_link(root: Root, address: str) -> Link:
    edge, port = find_edge(root, address)
    folder = f"/sys/bus/pci/devices/{edge}"
    return Link(
        pcie_generation=parse_generation(root.read(f"{folder}/current_link_speed")),
        pcie_generation_maximum=_read_generation_maximum(root, folder, port),
        pcie_lanes=_read_lanes(root, f"{folder}/current_link_width"),
        pcie_lanes_maximum=_read_lanes(root, f"{folder}/max_link_width"),
        pcie_lanes_slot=_read_lanes(root, f"/sys/bus/pci/devices/{port}/max_link_width") if port else None,
    )


def _read_generation_maximum(root: Root, folder: str, port: str | None) -> int | None:
    """What card and slot both can, as NVML tells it: a new card in an older machine's slot is no fault."""
    card = parse_generation(root.read(f"{folder}/max_link_speed"))
    slot = parse_generation(root.read(f"/sys/bus/pci/devices/{port}/max_link_speed")) if port else None
    return min(card, slot) if card and slot else card


def find_edge(root: Root, address: str) -> tuple[str, str | None]:
    """The card's outermost function towards the processor, and the port that it sits in, where it sits in one.

    A bridge belongs to the card when it is of the card's own vendor and no root port: those are the processor's.
    """
    way = _list_way(root, address)
    edge = len(way) - 1
    vendor = _read_id(root, address, "vendor") if way else None
    while vendor is not None and edge >= 2 and _is_own_bridge(root, way[edge - 1], vendor):
        edge -= 1
    return (way[edge], way[edge - 1] if edge else None) if way else (address, None)


def parse_generation(text: str | None) -> int | None:
    """`16.0 GT/s PCIe` is generation 4."""
    words = (text or "").split()
    return _GENERATIONS.get(words[0].removesuffix(".0")) if words else None


def _list_way(root: Root, address: str) -> list[str]:
    """The functions from the root port to the card, as sysfs nests them."""
    target = root.link_target(f"/sys/bus/pci/devices/{address}") or ""
    return [part for part in target.split("/") if ADDRESS.fullmatch(part)]


def _is_own_bridge(root: Root, address: str, vendor: int) -> bool:
    class_code = _read_id(root, address, "class")
    return class_code is not None and class_code >> 8 == _BRIDGE and _read_id(root, address, "vendor") == vendor


def _read_id(root: Root, address: str, name: str) -> int | None:
    return root.read_int(f"/sys/bus/pci/devices/{address}/{name}", 16)


def _read_lanes(root: Root, path: str) -> int | None:
    """None for 0 and for 255, which the kernel writes where there is no link to speak of."""
    lanes = root.read_int(path)
    return lanes if lanes is not None and 0 < lanes <= _MOST_LANES else None
