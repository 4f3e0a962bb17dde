"""The microarchitecture of a processor, by the vendor's code name.

The vendor's own numbers are believed first (x86: family, model, stepping; Arm: implementer and part; POWER: version
register; Apple: the chip's name). Flags check them, and stand in where a hypervisor has hidden or replaced them.
Exact or None: a name that two signals would give differently is given with the reason, or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from probes.names.cpu_flags import (
    InstructionClass,
    archspec_word,
    hidden_flags,
    impossible_flags,
    instruction_classes,
    marker_flags,
    smallest_classes,
)
from probes.names.cpu_identity import CpuIdentity
from probes.names.tables import read_table

FAMILY_AND_MODEL = "family and model"
IMPLEMENTER_AND_PART = "implementer and part"
FLAGS = "flags"
BRAND = "brand string"
APPLE_FAMILY = "hw.cpufamily"
VERSION_REGISTER = "processor version register"
PROCESSOR_LINE = "processor line"
UARCH = "uarch"
MACHINE_TYPE = "machine type"

SIZES = {"prime": 0, "big": 1, "little": 2}


@dataclass(frozen=True, slots=True)
class Identification:
    """What a processor is, and how that is known.

    name: the vendor's code name (`Alder Lake`, `Zen 4`, `Neoverse V2`), kinds of core joined by ` + ` from big to
    little; None where it is not known exactly. believed: the signal that the name rests on. reason: a sentence where
    there is no name, or where signals disagree. cores: each kind of Arm core. hidden: flags that the part has and a
    hypervisor hides. archspec: the name in archspec's spelling; on x86 archspec's word for the instructions shown,
    which is coarser than the code name (it has no Tiger Lake, and calls one `icelake`).
    """

    name: str | None = None
    believed: str | None = None
    reason: str | None = None
    cores: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    archspec: str | None = None


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


def identify(identity: CpuIdentity) -> Identification:
    """The microarchitecture of the processor that `identity` describes. Never raises."""
    if identity.cores:
        return identify_arm(identity)
    if identity.vendor_id is not None and identity.vendor_id != "IBM/S390":
        return identify_x86(identity)
    if identity.pvr_version is not None or (identity.processor or "").startswith("POWER"):
        return identify_power(identity)
    if identity.uarch is not None or identity.riscv_ids is not None:
        return identify_riscv(identity)
    if identity.machine_type is not None:
        name = table("s390")["machines"].get(str(identity.machine_type))
        return known(name, MACHINE_TYPE, f"IBM Z machine type {identity.machine_type}")
    if identity.apple_family is not None or (identity.name or "").startswith("Apple"):
        return identify_apple(identity)
    return Identification(reason="The machine names no vendor, model or part of its processor.")


def table(name: str) -> dict[str, Any]:
    content: dict[str, Any] = read_table("microarchitectures")[name]
    return content


def known(name: str | None, signal: str, subject: str) -> Identification:
    """The name that a signal gave, or why it gave none."""
    if name is None:
        return Identification(reason=f"{subject} is not in the table of processors.")
    return Identification(name=name, believed=signal, archspec=plain_archspec(name))


def plain_archspec(name: str) -> str:
    """archspec's word where it is the code name itself: `Neoverse V2` is `neoverse_v2`, `Apple M1` is `m1`."""
    word = name.removeprefix("Apple ").lower()
    return word.replace(" ", "_").replace("-", "_" if word.startswith(("cortex", "neoverse")) else "")


# --- Arm


def identify_arm(identity: CpuIdentity) -> Identification:
    """By implementer and part of each kind of core; no name unless every kind is known."""
    kinds: dict[str, int] = {}
    for implementer, part in identity.cores:
        row = table("arm").get(f"{implementer:#04x}", {}).get("parts", {}).get(f"{part:#05x}")
        if row is None:
            others = f" Beside it: {', '.join(kinds)}." if kinds else ""
            return Identification(
                reason=f"Arm implementer {implementer:#04x}, part {part:#05x} is not in the table of processors.{others}"
            )
        kinds.setdefault(row[0], SIZES[row[1]])
    names = tuple(sorted(kinds, key=lambda name: kinds[name]))
    archspec = plain_archspec(names[0]) if len(names) == 1 else None
    return Identification(" + ".join(names), IMPLEMENTER_AND_PART, cores=names, archspec=archspec)


# --- POWER, RISC-V, Apple


def identify_power(identity: CpuIdentity) -> Identification:
    """By the version register; the `cpu` line names what a partition runs as, which may be an older processor."""
    line = re.match(r"POWER\d{1,2}", identity.processor or "", re.ASCII)
    if identity.pvr_version is None:
        return known(line[0] if line else None, PROCESSOR_LINE, f"POWER's processor line {identity.processor!r:.40}")
    register = f"POWER version {identity.pvr_version:#06x}"
    found = known(table("power")["versions"].get(f"{identity.pvr_version:#06x}"), VERSION_REGISTER, register)
    if found.name is None and line is not None:
        return known(line[0], PROCESSOR_LINE, register)
    if found.name is not None and line is not None and found.name.rstrip("+") != line[0]:
        reason = (
            f"The version register says {found.name} and was believed; the system runs it compatible with {line[0]}."
        )
        return replace(found, reason=reason)
    return found


def identify_riscv(identity: CpuIdentity) -> Identification:
    """By the device tree's name, else by vendor and architecture id."""
    riscv = table("riscv")
    if identity.uarch is not None and (name := riscv["uarchs"].get(identity.uarch.lower())):
        return known(name, UARCH, identity.uarch)
    if identity.riscv_ids is None:
        return Identification(reason="This RISC-V core's name is not in the table of processors.")
    vendor, architecture = identity.riscv_ids
    ids = f"{vendor:#x}:{architecture:#x}"
    return known(riscv["ids"].get(ids), "mvendorid and marchid", f"RISC-V core {ids}")


def identify_apple(identity: CpuIdentity) -> Identification:
    """By the chip's name, else macOS's family number, else the one set of features that only one chip has."""
    named = re.match(r"Apple ([MA]\d{1,2})\b(?: (Pro)\b)?", identity.name or "", re.ASCII)
    if named:
        chip = named[1] + (" Pro" if named[1].startswith("A") and named[2] else "")
        return known(f"Apple {chip}", BRAND, "")
    if identity.apple_family is not None:
        number = f"{identity.apple_family:#010x}"
        return known(table("apple")["families"]["names"].get(number), APPLE_FAMILY, f"Apple processor family {number}")
    rule = table("apple")["flags"]
    if identity.flags.issuperset(rule["has"]) and identity.flags.isdisjoint(rule["lacks"]):
        reason = "macOS does not name this Apple processor; of those it runs on, only one has these features."
        return replace(known(rule["name"], FLAGS, ""), reason=reason)
    return Identification(reason="macOS does not name this Apple processor, nor tell its family.")


# --- x86


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
        for group in table("x86")
        for row in group["rows"]
    )


def identify_x86(identity: CpuIdentity) -> Identification:
    """By vendor, family, model and stepping, checked by the flags."""
    if any(re.match(one["brand"], identity.name or "") for one in table("invented")):
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
    part = instruction_classes(identity.vendor_id or "").get(row.class_name or "")
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
    if len(first) != 1:
        return Identification(reason=f"{doubt}: {' or '.join(names)}.", archspec=archspec)
    return Identification(first[0], FLAGS, f"{doubt}: {' or '.join(names)}.", archspec=archspec)


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
    return f"{subject} is not in the table of processors.{at_least}"


def names_of(vendor: str, part: InstructionClass) -> list[str]:
    """The code names of a class, in the table's order, each once."""
    return list(dict.fromkeys(row.name for row in x86_rows() if (row.vendor, row.class_name) == (vendor, part.name)))


def listed(flags: Iterable[str], limit: int = 6) -> str:
    """Up to `limit` flags and how many more."""
    words = list(flags)
    more = f" and {len(words) - limit} more" if len(words) > limit else ""
    return ", ".join(words[:limit]) + more
