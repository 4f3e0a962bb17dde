"""The devices that torch can train on here, as the `ready` event tells them."""

from __future__ import annotations

from typing import Any

import torch

from probes.microtrain.failures import first_line


def read_devices() -> list[dict[str, Any]]:
    """One row a CUDA device; a device that cannot be asked has nulls and a `why_not`.

    pci_address as in 0000:01:00.0; uuid as NVML writes it (GPU-…); capability as in 8.6; architectures: what this
    torch was built for (sm_86, …), the same for every device.
    """
    try:
        count = torch.cuda.device_count()
    except RuntimeError:
        return []
    return [_read_device(index) for index in range(count)]


def _read_device(index: int) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(("name", "uuid", "pci_address", "capability", "architectures", "why_not"))
    row["device"] = f"cuda:{index}"
    try:
        facts = torch.cuda.get_device_properties(index)
        row["name"] = facts.name
        row["capability"] = f"{facts.major}.{facts.minor}"
        row["architectures"] = torch.cuda.get_arch_list()
        row["uuid"] = _uuid(facts)
        row["pci_address"] = _pci_address(facts)
    except (RuntimeError, AssertionError) as error:  # a driver that answers no
        row["why_not"] = f"CUDA could not be started on this device: {first_line(error)}"
    return row


def _uuid(facts: Any) -> str | None:
    uuid = getattr(facts, "uuid", None)
    return None if uuid is None else f"GPU-{uuid}"


def _pci_address(facts: Any) -> str | None:
    bus = getattr(facts, "pci_bus_id", None)
    if bus is None:
        return None
    return f"{getattr(facts, 'pci_domain_id', 0):04x}:{bus:02x}:{getattr(facts, 'pci_device_id', 0):02x}.0"


def capability_of(device: str) -> tuple[int, int]:
    """(8, 6) for compute capability 8.6."""
    major, minor = torch.cuda.get_device_capability(device)
    return int(major), int(minor)
