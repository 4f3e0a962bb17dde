"""Sets of CPUs as whole numbers: bit n stands for CPU n. What the kernel writes as lists and masks."""

import re
from collections.abc import Iterable, Iterator

_HEXADECIMAL = re.compile(r"[0-9a-fA-F]+", re.ASCII)  # int() takes a sign too, and a negative set has no end
MAX_CPUS = 16_384  # twice the largest CONFIG_NR_CPUS (8192, x86-64 and arm64); a number beyond it is garbage


def parse_cpu_list(text: str | None) -> int | None:
    """`0-3,8,10-11` as a set; 0 for an empty text, None for what is no such list."""
    if text is None:
        return None
    cpus = 0
    for part in text.replace("\n", ",").split(","):
        if not (part := part.strip()):
            continue
        first, dash, last = part.partition("-")
        if not _is_number(first) or (dash and not _is_number(last)):
            return None
        start, end = int(first), int(last) if dash else int(first)
        if end < start or end >= MAX_CPUS:
            return None
        cpus |= ((1 << (end - start + 1)) - 1) << start
    return cpus


def parse_cpu_mask(text: str | None) -> int | None:
    """`00000000,0000ffff` (hexadecimal words, most significant first) as a set; None for what is no mask."""
    if text is None:
        return None
    digits = text.strip().replace(",", "").replace("\n", "")
    if len(digits) > MAX_CPUS // 4 or not _HEXADECIMAL.fullmatch(digits):
        return None
    return int(digits, 16)


def iterate_cpus(cpus: int) -> Iterator[int]:
    """CPU numbers in a set, lowest first."""
    while cpus:
        lowest = cpus & -cpus
        yield lowest.bit_length() - 1
        cpus ^= lowest


def unite_cpus(sets: Iterable[int]) -> int:
    """All CPUs that are in any of the sets."""
    united = 0
    for cpus in sets:
        united |= cpus
    return united


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 8
