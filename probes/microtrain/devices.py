"""The devices that torch can train on here, as the `ready` event tells them."""

from __future__ import annotations

from typing import Any

import torch

from probes.microtrain.failures import first_line


def read_devices() -> list[dict[str, Any]]:
    """One row a device of CUDA's (or ROCm's), Intel's or Apple's; one that cannot be asked has nulls and a `why_not`.

    pci_address as in 0000:01:00.0; uuid as torch writes it, with GPU- in front; capability as in 8.6; gfx_target as in
    gfx1100; architectures: what this torch was built for (sm_86, gfx1100, …), the same for every device.
    """
    return [*read_kind("cuda", torch.cuda), *read_kind("xpu", torch.xpu), *_read_mps()]


def read_kind(kind: str, module: Any) -> list[dict[str, Any]]:
    """The devices of one of torch's backends; module: torch.cuda, torch.xpu."""
    try:
        count = module.device_count()
    except Exception:  # noqa: BLE001 - a warning, too, where those are errors
        return []
    return [_read_device(kind, module, index) for index in range(count)]


def _read_device(kind: str, module: Any, index: int) -> dict[str, Any]:
    row = _empty_row(f"{kind}:{index}")
    try:
        facts = module.get_device_properties(index)
        row["name"] = facts.name
        row["memory_total_bytes"] = getattr(facts, "total_memory", None)
        row["uuid"] = _uuid(facts)
        row["pci_address"] = _pci_address(facts)
        if kind == "cuda":
            row["capability"] = f"{facts.major}.{facts.minor}"
            row["architectures"] = module.get_arch_list()
            row["gfx_target"] = _gfx_target(facts)
    except Exception as error:  # noqa: BLE001 - a driver that answers no, in whatever exception torch wraps that
        row["why_not"] = f"{kind.upper()} could not be started on this device: {first_line(error)}"
    return row


def _read_mps() -> list[dict[str, Any]]:
    """Apple's GPU: there is at most one, and it needs no telling apart."""
    return [_empty_row("mps")] if torch.backends.mps.is_available() else []


def _empty_row(device: str) -> dict[str, Any]:
    names = (
        "name",
        "uuid",
        "pci_address",
        "capability",
        "gfx_target",
        "architectures",
        "memory_total_bytes",
        "why_not",
    )
    return {**dict.fromkeys(names), "device": device}


def _gfx_target(facts: Any) -> str | None:
    """`gfx90a:sramecc+:xnack-` is gfx90a with two of its features; CUDA's devices have none."""
    name = str(getattr(facts, "gcnArchName", "") or "").partition(":")[0]
    return name if name.startswith("gfx") else None


def _uuid(facts: Any) -> str | None:
    uuid = getattr(facts, "uuid", None)
    if isinstance(uuid, bytes | bytearray):
        uuid = bytes(uuid).hex()
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
