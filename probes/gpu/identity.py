"""Whether a device that a library lists is a card that we know: by UUID, else by its place on the bus, never by order.

A library's UUID is 16 bytes, written as in 8932f937-d72c-4106-c12f-20bd9faed9f6. NVIDIA's is the one that NVML gives.
ROCm puts the 16 letters of the card's own number there. Level Zero writes the PCI ids and the address into it
(compute-runtime, DeviceUUID): vendor, device, revision and domain as two bytes each, then bus, device and function.
"""

import re

from probes.hardware import Accelerator

_INTEL = 0x8086


def is_same_card(card: Accelerator, uuid: str | None, address: str | None) -> bool:
    """By the UUID, which settles it for NVIDIA: a MIG instance shares its card's address."""
    if uuid and _plain(card.id) in (_plain(uuid), *_rocm_number(uuid)):
        return True
    if card.pci_address is None or card.id.startswith("MIG-") or _are_two(card, uuid):
        return False
    if address is None and card.vendor == "Intel":
        address = _level_zero_address(uuid)
    return address == card.pci_address


def may_be_same(card: Accelerator, uuid: str | None, address: str | None) -> bool:
    """Whether nothing tells that they are two: the device has no place, and one of them no number."""
    has_place = address is not None or _level_zero_address(uuid) is not None
    has_numbers = card.id.startswith(("GPU-", "MIG-")) and uuid is not None
    return card.pci_address is not None and not has_place and not has_numbers


def _are_two(card: Accelerator, uuid: str | None) -> bool:
    """Two UUIDs that differ, both known."""
    return card.vendor == "NVIDIA" and card.id.startswith("GPU-") and _hex(uuid) is not None


def _plain(uuid: str | None) -> str:
    return (uuid or "").lower().removeprefix("gpu-").removeprefix("mig-")


def _hex(uuid: str | None) -> bytes | None:
    digits = _plain(uuid).replace("-", "")
    return bytes.fromhex(digits) if re.fullmatch(r"[0-9a-f]{32}", digits) else None


def _rocm_number(uuid: str) -> tuple[str, ...]:
    """`38386165-…` is the text 88ae…, 16 digits."""
    raw = _hex(uuid)
    text = raw.decode("latin-1").lower() if raw else ""
    return (text,) if re.fullmatch(r"[0-9a-f]{16}", text) else ()


def _level_zero_address(uuid: str | None) -> str | None:
    raw = _hex(uuid)
    if raw is None or int.from_bytes(raw[:2], "little") != _INTEL:
        return None
    return f"{int.from_bytes(raw[6:8], 'little'):04x}:{raw[8]:02x}:{raw[9]:02x}.{raw[10]:x}"
