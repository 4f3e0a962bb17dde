"""The design of a core: Arm's by implementer and part, that of Intel's and AMD's hybrid parts by kind."""

from __future__ import annotations

from typing import Any

from probes.names.cpu_identity import CpuIdentity, parse_number
from probes.names.cpu_x86 import find_row
from probes.names.tables import read_table


def find_design(implementer_text: str | None, part_text: str | None) -> tuple[str, str] | None:
    """Name and size (prime, big, little) of an Arm core, by the two numbers as /proc/cpuinfo writes them."""
    row = _find_part(_find_implementer(implementer_text), part_text)
    return (row[0], row[1]) if row else None


def name_part(implementer_text: str | None, part_text: str | None) -> tuple[str | None, str | None]:
    """Who made an Arm core, and the core, as lscpu calls them, by the two numbers as /proc/cpuinfo writes them."""
    implementer = _find_implementer(implementer_text)
    row = _find_part(implementer, part_text)
    names = row[:1] + row[2:]
    return implementer.get("vendor"), names[-1] if names else None


def _find_implementer(text: str | None) -> dict[str, Any]:
    number = parse_number(text)
    found: dict[str, Any] = {} if number is None else read_table("microarchitectures")["arm"].get(f"{number:#04x}", {})
    return found


def _find_part(implementer: dict[str, Any], text: str | None) -> list[str]:
    """Name, size, and lscpu's name where it is another; empty where the table does not have the part."""
    number = parse_number(text)
    row: list[str] = [] if number is None else implementer.get("parts", {}).get(f"{number:#05x}", [])
    return row


def hybrid_designs(identity: CpuIdentity, microarchitecture: str | None) -> tuple[str | None, ...]:
    """Designs of an x86 part's performance, efficiency and low-power cores, as far as they are known."""
    if identity.vendor_id == "AuthenticAMD" and microarchitecture:
        return (microarchitecture, f"{microarchitecture}c")  # AMD's dense cores: Zen 4c, Zen 5c
    return tuple(_hybrid_row(identity) or ())


def may_be_hybrid(identity: CpuIdentity) -> bool:
    """Whether Intel makes this model with several kinds of core, or it does not say which model it is.

    A model that is neither in the table of hybrid parts nor in that of all parts came later, and may be.
    """
    return _hybrid_row(identity) is not None or find_row(identity) is None


def has_dense_cores(identity: CpuIdentity) -> bool:
    """Whether AMD makes this model with dense cores beside others; of what came later than the tables it may."""
    models = read_table("microarchitectures")["dense"].get(identity.vendor_id or "", {}).get("models", {})
    ranges: list[list[int]] = models.get(str(identity.family), [])
    listed = identity.model is not None and any(first <= identity.model <= last for first, last in ranges)
    return listed or (bool(models) and find_row(identity) is None)


def _hybrid_row(identity: CpuIdentity) -> list[str] | None:
    if identity.family != 6 or identity.model is None:
        return None
    vendor = read_table("microarchitectures")["hybrid"].get(identity.vendor_id or "", {})
    row: list[str] | None = vendor.get("models", {}).get(f"{identity.model:#04x}")
    return row
