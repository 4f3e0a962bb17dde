"""An x86 processor's microarchitecture, by vendor, family, model and stepping, checked by its flags.

Where a hypervisor has replaced the numbers, the flags prove it; where it has hidden flags, the numbers stand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from probes.names.cpu_flags import (
    InstructionClass,
    alike_classes,
    archspec_word,
    find_class,
    hidden_flags,
    impossible_flags,
    marker_flags,
    smallest_classes,
)
from probes.names.cpu_identity import CpuIdentity
from probes.names.identification import FAMILY_AND_MODEL, FLAGS, Identification
from probes.names.tables import read_table


@dataclass(frozen=True, slots=True)
class X86Row:
    """One row of the x86 table; see microarchitectures.toml."""

    vendor: str
    source: str
    name: str
    family: int
    models: tuple[tuple[int, int], ...]
    steppings: tuple[int, int]
    brand: str | None
    class_name: str | None


@cache
def x86_rows() -> tuple[X86Row, ...]:
    return tuple(
        X86Row(
            vendor=group["vendor"],
            source=group["source"],
            name=row["name"],
            family=row["family"],
            models=tuple((one, one) if isinstance(one, int) else (one[0], one[1]) for one in row["models"]),
            steppings=tuple(row.get("steppings", (0, 15))),
            brand=row.get("brand"),
            class_name=row.get("class"),
        )
        for group in read_table("microarchitectures")["x86"]
        for row in group["rows"]
    )


def identify_x86(identity: CpuIdentity) -> Identification:
    """By vendor, family, model and stepping, checked by the flags."""
    if any(re.match(one["brand"], identity.name or "") for one in read_table("microarchitectures")["invented"]):
        return Identification(reason="The hypervisor presents a processor of its own, which no silicon corresponds to.")
    if (identity.name or "").startswith("VirtualApple"):
        return Identification(
            reason="Rosetta translates for an Apple processor and presents an Intel one; run natively."
        )
    if identity.family is None or identity.model is None:
        return identify_by_flags(identity)
    row = find_row(identity)
    if row is None:
        return Identification(reason=unknown_model(identity))
    part = find_class(row.vendor, row.class_name, identity.name)
    if part is None or not identity.flags:
        return Identification(row.name, FAMILY_AND_MODEL)
    if impossible := impossible_flags(part, identity.flags):
        return believe_flags(identity, row, impossible)
    return Identification(
        row.name,
        FAMILY_AND_MODEL,
        archspec=archspec_word(row.vendor, part, identity.flags),
        **hidden_by_hypervisor(identity, row, part),
    )


def find_row(identity: CpuIdentity) -> X86Row | None:
    """The first row that fits. Without a stepping, only a row that needs none; without a brand, likewise."""
    for row in x86_rows():
        if row.vendor != identity.vendor_id or row.family != identity.family:
            continue
        if not any(first <= (identity.model or 0) <= last for first, last in row.models):
            continue
        if not fits_stepping(row, identity.stepping):
            continue
        if row.brand is None or re.search(row.brand, identity.name or "", re.ASCII):
            return row
    return None


def fits_stepping(row: X86Row, stepping: int | None) -> bool:
    return row.steppings == (0, 15) if stepping is None else row.steppings[0] <= stepping <= row.steppings[1]


def hidden_by_hypervisor(identity: CpuIdentity, row: X86Row, part: InstructionClass) -> dict[str, Any]:
    """`hidden` and `reason` where a hypervisor is seen and the part's flags are not all there; else nothing."""
    hidden = hidden_flags(part, identity.flags)
    if not hidden or "hypervisor" not in identity.flags:
        return {}
    reason = (
        f"Family and model were believed; {row.name} has {listed(hidden)}, which the hypervisor hides, "
        "so programs cannot use them."
    )
    return {"hidden": tuple(hidden), "reason": reason}


def believe_flags(identity: CpuIdentity, row: X86Row, impossible: list[str]) -> Identification:
    """Where the flags prove family and model wrong: the flags' own answer, or none."""
    doubt = (
        f"Family {identity.family}, model {identity.model} say {row.name}, which cannot have {listed(impossible)}; "
        "a hypervisor can replace the numbers but cannot give instructions, so the flags were believed"
    )
    found = smallest_classes(row.vendor, identity.flags)
    if len(found) != 1:
        return Identification(reason=f"{doubt}, and they fit no processor in the table.")
    names = names_of(row.vendor, found[0])
    archspec = archspec_word(row.vendor, found[0], identity.flags)
    first = [name for name in names if name not in found[0].refreshes]
    later = [name for one in alike_classes(row.vendor, found[0]) for name in names_of(row.vendor, one)]
    unshown = f"; {' or '.join(later)} would differ in nothing that most kernels show" if later else ""
    reason = f"{doubt}: {' or '.join(names)}{unshown}."
    if len(first) != 1:
        return Identification(reason=reason, archspec=archspec)
    return Identification(first[0], FLAGS, reason, archspec=archspec)


def identify_by_flags(identity: CpuIdentity) -> Identification:
    """Without family or model, only where the flags are exactly one processor's."""
    vendor = identity.vendor_id or ""
    found = smallest_classes(vendor, identity.flags)
    exact = [one for one in found if one.has & marker_flags() == identity.flags & marker_flags()]
    names = names_of(vendor, exact[0]) if len(exact) == 1 else []
    if len(names) != 1:
        return Identification(reason="The machine does not tell the processor's family and model, nor do its flags.")
    reason = "The machine does not tell the processor's family and model; its flags were believed."
    return Identification(names[0], FLAGS, reason, archspec=archspec_word(vendor, exact[0], identity.flags))


def unknown_model(identity: CpuIdentity) -> str:
    """Why there is no name, and what the flags say of it."""
    stepping = "" if identity.stepping is None else f", stepping {identity.stepping}"
    subject = f"{identity.vendor_id!r:.20} family {identity.family}, model {identity.model}{stepping}"
    found = smallest_classes(identity.vendor_id or "", identity.flags)
    names = names_of(identity.vendor_id or "", found[0]) if len(found) == 1 and len(identity.flags) > 1 else []
    at_least = f" Its instructions are at least those of {' or '.join(names)}." if names else ""
    return f"{subject} is not in the table of processors, or stands for several.{at_least}"


def names_of(vendor: str, part: InstructionClass) -> list[str]:
    """The code names of a class, in the table's order, each once."""
    return list(dict.fromkeys(row.name for row in x86_rows() if (row.vendor, row.class_name) == (vendor, part.name)))


def listed(flags: Iterable[str], limit: int = 6) -> str:
    """Up to `limit` flags and how many more."""
    words = list(flags)
    more = f" and {len(words) - limit} more" if len(words) > limit else ""
    return ", ".join(words[:limit]) + more
