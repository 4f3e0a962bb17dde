"""An x86 processor's CPUID registers to its identity: what Windows (and a bare instruction) gives.

Layouts: Intel SDM volume 2, CPUID; AMD APM volume 3, appendix E.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from probes.names.cpu_identity import CpuIdentity, parse_number
from probes.names.tables import read_table

Registers = tuple[int, int, int, int]  # eax, ebx, ecx, edx
Leaves = Mapping[tuple[int, int], Registers]

REGISTER_NAMES = ("eax", "ebx", "ecx", "edx")
BRAND_LEAVES = (0x8000_0002, 0x8000_0003, 0x8000_0004)


def parse_cpuid(text: str) -> CpuIdentity:
    """Lines of `leaf, subleaf, eax, ebx, ecx, edx`, decimal or 0x; other lines are passed over."""
    leaves = dict(read_leaves(text))
    family, model, stepping = decode_signature(leaves)
    return CpuIdentity(
        name=decode_brand(leaves),
        vendor_id=decode_vendor(leaves),
        family=family,
        model=model,
        stepping=stepping,
        flags=frozenset(decode_flags(leaves)),
    )


def read_leaves(text: str) -> Iterator[tuple[tuple[int, int], Registers]]:
    for line in text.splitlines():
        numbers = [parse_number(word) for word in re.split(r"[,\s]+", line.strip())]
        words = [number for number in numbers if number is not None and 0 <= number <= 0xFFFF_FFFF]
        if len(words) == len(numbers) == 6:
            yield (words[0], words[1]), (words[2], words[3], words[4], words[5])


def decode_vendor(leaves: Leaves) -> str | None:
    """Leaf 0: twelve letters in ebx, edx, ecx."""
    registers = leaves.get((0, 0))
    return None if registers is None else decode_text((registers[1], registers[3], registers[2]))


def decode_brand(leaves: Leaves) -> str | None:
    """Leaves 0x80000002 to 4: 48 letters; None unless all three are there."""
    parts = [leaves.get((leaf, 0)) for leaf in BRAND_LEAVES]
    registers = [register for part in parts if part is not None for register in part]
    return decode_text(tuple(registers)) if len(registers) == 12 else None


def decode_text(registers: tuple[int, ...]) -> str | None:
    letters = b"".join(register.to_bytes(4, "little") for register in registers)
    return letters.split(b"\0")[0].decode("ascii", "replace").strip() or None


def decode_signature(leaves: Leaves) -> tuple[int | None, int | None, int | None]:
    """Leaf 1's eax: family, model, stepping as displayed. The extended model counts in families 6 and 15 up."""
    registers = leaves.get((1, 0))
    if registers is None:
        return None, None, None
    signature = registers[0]
    family, model, stepping = signature >> 8 & 0xF, signature >> 4 & 0xF, signature & 0xF
    if family in (6, 15):
        model |= (signature >> 16 & 0xF) << 4
    if family == 15:
        family += signature >> 20 & 0xFF
    return family, model, stepping


def decode_flags(leaves: Leaves) -> Iterator[str]:
    """The flags of every register that the table knows, in Linux's spelling."""
    for place, bits in read_table("microarchitectures")["cpuid"]["bits"].items():
        leaf, subleaf, register = place.split(".")
        registers = leaves.get((int(leaf, 16), int(subleaf)))
        if registers is not None:
            value = registers[REGISTER_NAMES.index(register)]
            yield from (flag for flag, bit in bits.items() if value >> bit & 1)
