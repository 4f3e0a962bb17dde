"""The microarchitecture of a processor, by the vendor's code name.

The vendor's own numbers are believed first (x86: family, model, stepping; Arm: implementer and part; POWER: version
register; Apple: the chip's name). Flags check them, and stand in where a hypervisor has hidden or replaced them.
Exact or None: a name that two signals would give differently is given with the reason, or not at all.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from probes.names.cpu_flags import find_class
from probes.names.cpu_identity import CpuIdentity
from probes.names.cpu_x86 import identify_x86, x86_rows
from probes.names.identification import (
    APPLE_FAMILY,
    BRAND,
    FLAGS,
    IMPLEMENTER_AND_PART,
    MACHINE_TYPE,
    PROCESSOR_LINE,
    RISCV_IDS,
    UARCH,
    VERSION_REGISTER,
    Identification,
    known,
    plain_archspec,
)
from probes.names.tables import read_table

SIZES = {"prime": 0, "big": 1, "little": 2}


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
    if identity.name is not None:
        return Identification(reason=f"{identity.name} is not in the table of processors.")
    return Identification(reason="The machine names no vendor, model or part of its processor.")


def table(name: str) -> dict[str, Any]:
    content: dict[str, Any] = read_table("microarchitectures")[name]
    return content


def expected_instruction_sets(microarchitecture: str, name: str | None = None) -> frozenset[str]:
    """Flags that tell generations apart and that every part of this microarchitecture has, in Linux's spelling.

    name: the processor's own: a Pentium or Celeron is not expected to have all. Empty where the tables do not say.
    What is expected and not shown is hidden: by a hypervisor, by the firmware, or by a kernel too old to know its name.
    """
    rows = [row for row in x86_rows() if row.name == microarchitecture]
    classes = [find_class(row.vendor, row.class_name, name) for row in rows]
    sets = [part.has for part in classes if part is not None]
    return frozenset.intersection(*sets) if sets else frozenset(table("expected").get(microarchitecture, ()))


# --- Arm


def identify_arm(identity: CpuIdentity) -> Identification:
    """By implementer and part of each kind of core; no name unless every kind is known."""
    kinds: dict[str, int] = {}
    for implementer, part in identity.cores:
        row = table("arm").get(f"{implementer:#04x}", {}).get("parts", {}).get(f"{part:#05x}")
        if row is None:
            others = f" Beside it: {', '.join(kinds)}." if kinds else ""
            subject = f"Arm implementer {implementer:#04x}, part {part:#05x}"
            return Identification(reason=f"{subject} is not in the table of processors.{others}")
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
    return known(riscv["ids"].get(ids), RISCV_IDS, f"RISC-V core {ids}")


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
