"""What a processor says of itself, as text from Linux, macOS or Windows.

Pure functions from text to CpuIdentity. Nothing here raises: what a text does not say, or says garbled, is None.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

# One kind of core each; the largest chips have four. A hostile text must not make us keep a million.
MAX_CORE_KINDS = 16

# In the place of a name: Linux on x86 where the processor says none (arch/x86/kernel/cpu/proc.c), and gVisor always
# (its pkg/cpuid).
NO_NAME = "unknown"

# macOS writes some flags otherwise than Linux (archspec-json, conversions.darwin_flags).
DARWIN_FLAGS = {
    "sse3": "pni",
    "sse4.1": "sse4_1",
    "sse4.2": "sse4_2",
    "avx1.0": "avx",
    "lahf": "lahf_lm",
    "sha": "sha_ni",
    "lzcnt": "abm",
    "clfsopt": "clflushopt",
    "rdwrfsgs": "fsgsbase",
    "avx512vbmi2": "avx512_vbmi2",
    "avx512vnni": "avx512_vnni",
    "avx512bitalg": "avx512_bitalg",
    "avx512vpopcntdq": "avx512_vpopcntdq",
    "vmm": "hypervisor",
}


@dataclass(frozen=True, slots=True)
class CpuIdentity:
    """A processor's own numbers and words, each as the vendor wrote it; None or empty where it says nothing.

    vendor_id: x86's twelve letters. family, model, stepping: x86's, as displayed (extended ones added in). flags: in
    Linux's spelling. cores: Arm's (implementer, part), each kind once, in order of appearance. processor: POWER's
    `cpu` line; pvr_version: the upper half of its version register. uarch: RISC-V's device-tree name; riscv_ids:
    (mvendorid, marchid). machine_type: IBM Z's. apple_family: macOS's hw.cpufamily.
    """

    name: str | None = None
    vendor_id: str | None = None
    family: int | None = None
    model: int | None = None
    stepping: int | None = None
    flags: frozenset[str] = frozenset()
    cores: tuple[tuple[int, int], ...] = ()
    processor: str | None = None
    pvr_version: int | None = None
    uarch: str | None = None
    riscv_ids: tuple[int, int] | None = None
    machine_type: int | None = None
    apple_family: int | None = None


def parse_number(text: str | None) -> int | None:
    """A decimal or 0x number of at most 20 characters; None for anything else."""
    if text is None or not re.fullmatch(r"-?\d{1,19}|0[xX][0-9a-fA-F]{1,18}", text, re.ASCII):
        return None
    return int(text, 16 if text[:2].lower() == "0x" else 10)


def read_fields(text: str) -> Iterator[tuple[str, str]]:
    """`key : value` lines as (lower-case key, value), blanks stripped; other lines are passed over."""
    for line in text.splitlines():
        key, separator, value = line.partition(":")
        if separator:
            yield " ".join(key.split()).lower(), value.strip()


def parse_cpuinfo(text: str) -> CpuIdentity:
    """Linux's /proc/cpuinfo, of any architecture.

    The first processor speaks for all, as x86's say the same thing on every core; of Arm's, each kind of core is kept.
    """
    first: dict[str, str] = {}
    kinds: dict[tuple[int, int], None] = {}
    implementer: int | None = None
    for key, value in read_fields(text):
        first.setdefault(key, value)
        if key == "cpu implementer":
            implementer = parse_number(value)
        elif key == "cpu part" and implementer is not None and len(kinds) < MAX_CORE_KINDS:
            part = parse_number(value)
            if part is not None:
                kinds.setdefault((implementer, part))
    return CpuIdentity(
        name=known_name(first.get("model name") or first.get("cpu model")),
        vendor_id=known_name(first.get("vendor_id")),
        family=parse_number(first.get("cpu family")),
        model=parse_number(first.get("model")),
        stepping=parse_number(first.get("stepping")),
        flags=frozenset(first.get("flags", first.get("features", "")).split()),
        cores=tuple(kinds),
        processor=first.get("cpu") or None,
        pvr_version=parse_pvr_version(first.get("revision", "")),
        uarch=first.get("uarch") or None,
        riscv_ids=parse_riscv_ids(first),
        machine_type=parse_machine_type(first.get("processor 0", "")),
    )


def known_name(text: str | None) -> str | None:
    """None for no text, and for the word that stands for none."""
    return None if text is None or text.strip() in ("", NO_NAME) else text


def parse_pvr_version(revision: str) -> int | None:
    """POWER's version from `2.2 (pvr 004e 1202)`: 0x4e."""
    match = re.search(r"\(pvr ([0-9a-fA-F]{4}) [0-9a-fA-F]{4}\)", revision)
    return int(match[1], 16) if match else None


def parse_riscv_ids(fields: dict[str, str]) -> tuple[int, int] | None:
    vendor, architecture = parse_number(fields.get("mvendorid")), parse_number(fields.get("marchid"))
    return None if vendor is None or architecture is None else (vendor, architecture)


def parse_machine_type(processor: str) -> int | None:
    """IBM Z's machine type from `version = FF,  identification = 0133E8,  machine = 3931`."""
    match = re.search(r"\bmachine = (\d{4})\b", processor, re.ASCII)
    return int(match[1]) if match else None


def parse_sysctl(text: str) -> CpuIdentity:
    """macOS's `sysctl machdep.cpu hw`, on Intel and on Apple silicon.

    A Mac that names Intel's model without the family has family 6: no Intel Mac has had another.
    """
    fields = dict(read_fields(text))
    vendor = fields.get("machdep.cpu.vendor") or None
    family = parse_number(fields.get("machdep.cpu.family"))
    apple_family = parse_number(fields.get("hw.cpufamily"))
    return CpuIdentity(
        name=fields.get("machdep.cpu.brand_string") or None,
        vendor_id=vendor,
        family=6 if family is None and vendor == "GenuineIntel" else family,
        model=parse_number(fields.get("machdep.cpu.model")),
        stepping=parse_number(fields.get("machdep.cpu.stepping")),
        flags=frozenset(darwin_flags(fields)),
        # sysctl prints it as a signed 32-bit number
        apple_family=None if apple_family is None else apple_family & 0xFFFF_FFFF,
    )


def darwin_flags(fields: dict[str, str]) -> Iterator[str]:
    """Intel's three feature lists in Linux's spelling, and the Arm features that are there, in lower case."""
    for key in ("machdep.cpu.features", "machdep.cpu.leaf7_features", "machdep.cpu.extfeatures"):
        for word in fields.get(key, "").lower().split():
            yield DARWIN_FLAGS.get(word, word)
    for key, value in fields.items():
        match = re.fullmatch(r"hw\.optional\.(?:arm\.feat_|armv8_\d_)(\w+)", key)
        if match and value == "1":
            yield match[1]
