"""Merges what torch itself says (in a micro-training process, the only place it is imported) into a survey. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from probes.hardware import Accelerator, Survey, Torch


def merge_torch(survey: Survey, ready: dict[str, Any]) -> Survey:
    """The survey with torch's answer: is a device available, how many, and which accelerator is which device.

    ready: the `ready` event of docs/protocol.md. Fields that are missing or of another type change nothing.
    """
    devices = [device for device in _rows(ready.get("devices")) if device.get("device") != "cpu"]
    accelerators = tuple(_with_device(accelerator, devices) for accelerator in survey.accelerators)
    software = replace(survey.software, torch=_with_answer(survey.software.torch or Torch(), ready, devices))
    return replace(survey, accelerators=accelerators, software=software)


def _with_answer(torch: Torch, ready: dict[str, Any], devices: list[dict[str, Any]]) -> Torch:
    cuda = [device for device in devices if str(device.get("device", "")).startswith("cuda")]
    architectures = tuple(dict.fromkeys(str(name) for device in cuda for name in device.get("architectures") or ()))
    version = ready.get("torch")
    return replace(
        torch,
        version=version if isinstance(version, str) else torch.version,
        cuda_available=bool(cuda),
        device_count=len(cuda),
        current_device=0 if cuda else None,
        architectures=architectures or torch.architectures,
    )


def _with_device(accelerator: Accelerator, devices: list[dict[str, Any]]) -> Accelerator:
    for device in devices:
        if _is_same(accelerator, device):
            return replace(accelerator, torch_device=str(device["device"]), usable=True, why_not=None)
    return accelerator


def _is_same(accelerator: Accelerator, device: dict[str, Any]) -> bool:
    """By UUID where both have one, else by PCI address: names and indices are not unique (MIG, equal cards)."""
    here, there = _plain_uuid(accelerator.id), _plain_uuid(device.get("uuid"))
    if here and there and "-" in here:
        return here == there
    address = _plain_address(accelerator.pci_address)
    return address is not None and address == _plain_address(device.get("pci_address"))


def _plain_uuid(text: object) -> str:
    """NVML writes `GPU-…` and `MIG-…`, torch leaves the prefix out."""
    return str(text or "").lower().removeprefix("gpu-").removeprefix("mig-")


def _plain_address(text: object) -> tuple[int, ...] | None:
    """`0000:01:00.0`, `00000000:01:00.0` and `01:00` are one address; without the function, which is always 0."""
    parts = str(text or "").partition(".")[0].split(":")
    try:
        numbers = tuple(int(part, 16) for part in parts)
    except ValueError:
        return None
    return (0,) * (3 - len(numbers)) + numbers if 2 <= len(numbers) <= 3 else None


def _rows(value: object) -> list[dict[str, Any]]:
    return [row for row in value if isinstance(row, dict) and "device" in row] if isinstance(value, list) else []
