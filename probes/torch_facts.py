"""What only torch itself can tell, merged into a survey: the micro-training's `ready` event (docs/protocol.md).

torch counts devices in another order than NVML, so they are matched by UUID, else by PCI address. Unknown or
ill-typed fields of the event change nothing, and nothing here raises.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from probes.hardware import Accelerator, Software, Survey, Torch
from probes.reading import clean


def with_torch_facts(survey: Survey, ready: dict[str, Any]) -> Survey:
    """The survey with torch's devices: which cards it can use, and by which name. The fingerprint stays."""
    devices = _list_devices(ready)
    cards = tuple(_add_device(card, devices) for card in survey.accelerators)
    return replace(survey, accelerators=cards, software=add_to_software(survey.software, ready))


def add_to_software(software: Software, ready: dict[str, Any]) -> Software:
    cuda = [device for device in _list_devices(ready) if str(device.get("device", "")).startswith("cuda")]
    torch = software.torch or Torch()
    merged = replace(
        torch,
        version=_text(ready.get("torch")) or torch.version,
        cuda_version=_text(ready.get("cuda_version")) or torch.cuda_version,
        cudnn_version=_text(ready.get("cudnn_version")) or torch.cudnn_version,
        cuda_available=bool(cuda),
        device_count=len(cuda),
        current_device=0 if cuda else None,
        architectures=_architectures(cuda) or torch.architectures,
    )
    return replace(software, torch=merged)


def has_kernels(capability: str | None, architectures: Sequence[str]) -> bool:
    """Whether a build for these architectures (`sm_86`, `compute_90`) runs on a card; True where it cannot be told.

    Machine code runs on the same major version with the same or a higher minor one; PTX (compute_…) on any newer card
    (CUDA C++ Programming Guide, "Binary compatibility" and "PTX compatibility").
    """
    card = re.fullmatch(r"(\d+)\.(\d+)", capability or "")
    built = [re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", name) for name in architectures]
    known = [(match[1], int(match[2]), int(match[3])) for match in built if match]
    if card is None or not known:
        return True
    major, minor = int(card[1]), int(card[2])
    return any(
        (kind == "sm" and own_major == major and own_minor <= minor)
        or (kind == "compute" and (own_major, own_minor) <= (major, minor))
        for kind, own_major, own_minor in known
    )


def _add_device(card: Accelerator, devices: list[dict[str, Any]]) -> Accelerator:
    device = next((device for device in devices if _is_same(card, device)), None)
    if device is not None:
        why = _text(device.get("why_not")) or _explain_kernels(card, device)
        return replace(card, torch_device=_text(device.get("device")), usable=why is None, why_not=why)
    if card.usable is None and card.vendor == "NVIDIA":
        return replace(card, usable=False, why_not="torch does not list it (CUDA_VISIBLE_DEVICES may hide it)")
    return card


def _is_same(card: Accelerator, device: dict[str, Any]) -> bool:
    """A MIG instance shares its card's address, so only its UUID counts."""
    uuid = str(device.get("uuid") or "").removeprefix("GPU-")
    if uuid and uuid.removeprefix("MIG-") == card.id.removeprefix("GPU-").removeprefix("MIG-"):
        return True
    address = device.get("pci_address")
    return address is not None and address == card.pci_address and not card.id.startswith("MIG-")


def _explain_kernels(card: Accelerator, device: dict[str, Any]) -> str | None:
    capability = _text(device.get("capability")) or card.compute_capability
    if has_kernels(capability, _architectures([device])):
        return None
    return f"this build of torch has no kernels for compute capability {capability}; install one that has"


def _list_devices(ready: dict[str, Any]) -> list[dict[str, Any]]:
    devices = ready.get("devices")
    return [device for device in devices if isinstance(device, dict)] if isinstance(devices, list | tuple) else []


def _architectures(devices: list[dict[str, Any]]) -> tuple[str, ...]:
    lists = [device.get("architectures") for device in devices]
    return tuple(sorted({str(name) for row in lists if isinstance(row, list | tuple) for name in row}))


def _text(value: Any) -> str | None:
    return clean(str(value)) if isinstance(value, str | int) and not isinstance(value, bool) else None
