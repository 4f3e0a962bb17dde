"""Why a processor got the name of its microarchitecture, as a sentence."""

from __future__ import annotations

from probes.names.cpu_identity import CpuIdentity
from probes.names.identification import (
    APPLE_FAMILY,
    BRAND,
    FAMILY_AND_MODEL,
    FLAGS,
    IMPLEMENTER_AND_PART,
    MACHINE_TYPE,
    PROCESSOR_LINE,
    RISCV_IDS,
    UARCH,
    VERSION_REGISTER,
    Identification,
)


def explain_identification(identity: CpuIdentity, found: Identification) -> str | None:
    """Which signal was believed, with its numbers, and which was not; None where there is no name."""
    if found.name is None or found.believed is None:
        return None
    believed = f"{_signal(identity, found)}, named it."
    return f"{believed} {found.reason}" if found.reason else believed


def _signal(identity: CpuIdentity, found: Identification) -> str:
    sentences = {
        FAMILY_AND_MODEL: _numbers(identity),
        IMPLEMENTER_AND_PART: _parts(identity),
        FLAGS: "The instruction sets it shows",
        BRAND: f"The name it gives itself, {identity.name}",
        APPLE_FAMILY: f"macOS's hw.cpufamily, {identity.apple_family or 0:#010x}",
        VERSION_REGISTER: f"The processor version register, {identity.pvr_version or 0:#06x}",
        PROCESSOR_LINE: f"The processor line, {identity.processor}",
        UARCH: f"The device tree's name, {identity.uarch}",
        RISCV_IDS: "The vendor's own numbers, mvendorid {:#x}, marchid {:#x}".format(*(identity.riscv_ids or (0, 0))),
        MACHINE_TYPE: f"The machine type, {identity.machine_type}",
    }
    return sentences[found.believed or FLAGS]


def _numbers(identity: CpuIdentity) -> str:
    stepping = "" if identity.stepping is None else f", stepping {identity.stepping}"
    return f"The vendor's own numbers, {identity.vendor_id} family {identity.family}, model {identity.model}{stepping}"


def _parts(identity: CpuIdentity) -> str:
    parts = " and ".join(f"implementer {implementer:#04x}, part {part:#05x}" for implementer, part in identity.cores)
    return f"The vendor's own numbers, {parts}"
