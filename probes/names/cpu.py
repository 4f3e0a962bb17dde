"""What a processor's marketing name says: generation, tier, suffix.

Exact or unknown: a name that the vendor's numbering does not have is None, never the nearest one. The rules are data,
in cpus.toml.
"""

from __future__ import annotations

import re
import string
from dataclasses import dataclass
from functools import cache
from typing import Any

from probes.names.tables import read_table

# CPUID's brand string has 48 letters; DMI and sellers add a few words.
MAX_NAME_LENGTH = 160

# What stands in a name and says nothing of the part: marks, kind words, core counts, clock, graphics, a hypervisor's
# remarks in brackets.
NOISE = re.compile(
    r"\((?:R|TM|C)\)|[®™©]"
    r"|\s*(?:@|\bAT\b)\s*\d.*"
    r"|\bW(?:ITH|/)\s+(?:AMD )?RADEON\b.*|\bRADEON R\d.*|\bAPU\b.*"
    r"|\([^()]*\)"
    r"|\b\d+(?:\.\d+)?\s?[GM]HZ\b"
    r"|\b(?:\d+|TWO|DUAL|TRIPLE|QUAD|SIX|EIGHT|TEN|TWELVE|SIXTEEN)[- ]CORES?\b"
    r"|\bCPU\b|\b(?:X-SERIES )?PROCESSOR\b",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class CpuName:
    """A processor by its name.

    generation: `12th Gen Core`, `EPYC 9004`; None where the name does not settle it (a hypervisor's `AMD EPYC`).
    tier: `Core i9`, `Xeon Gold`, `Ryzen 7`. suffix: `KF`, `X3D`, as written; suffix_meaning: a sentence. segment:
    `consumer`, `workstation`, `data-center`, `laptop`, `embedded`. source: where the rule is from.
    """

    vendor: str
    generation: str | None = None
    tier: str | None = None
    suffix: str | None = None
    suffix_meaning: str | None = None
    segment: str | None = None
    source: str | None = None


class Template(string.Formatter):
    """`{x!l}` lower case, `{x!t}` title case, `{x!o}` ordinal; a group that did not take part is empty."""

    def convert_field(self, value: Any, conversion: Any) -> Any:
        if conversion == "l":
            return str(value).lower()
        if conversion == "t":
            return str(value).title()
        if conversion == "o":
            return ordinal(int(value))
        return super().convert_field(value, conversion)


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th, 11th; numbers below 100."""
    ending = "th" if number in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def parse_cpu_name(name: str) -> CpuName | None:
    """What `name` says, as the vendor, the system or a seller writes it; None for a name not known. Never raises."""
    if len(name) > MAX_NAME_LENGTH:
        return None
    plain = plain_name(name)
    for line in read_table("cpus")["line"]:
        if any(word in plain for word in line["keywords"]):
            for row in line["rows"]:
                found = match_row(line, row, plain)
                if found is not None:
                    return found
    return None


def name_by_host(maker: str | None, product: str | None, core: str | None) -> str | None:
    """The processor's marketing name where its maker sells this core in one processor only; None elsewhere.

    maker, product: DMI's sys_vendor and product_name, stripped. core: the microarchitecture. Linux on Arm says no more.
    """
    for row in read_table("cpus")["host"]:
        other = row.get("unless")
        if row.get("maker") in (None, maker) and not (other and (product or "").startswith(other)):
            named: str | None = row["cores"].get(core)
            if named is not None:
                return named
    return None


def plain_name(name: str) -> str:
    """Upper case, without what says nothing of the part, blanks single."""
    return " ".join(NOISE.sub(" ", name.upper()).split()).replace(" -", "-").replace("FX -", "FX-")


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)


def match_row(line: dict[str, Any], row: dict[str, Any], plain: str) -> CpuName | None:
    """The name by one row of the table, or None where it does not fit."""
    match = compiled(row["pattern"]).fullmatch(plain)
    if match is None:
        return None
    groups = {key: value or "" for key, value in match.groupdict().items()}
    if groups.get("stated") and groups["stated"] != groups["nth"]:
        return None
    suffix = written_suffix(row, groups)
    meaning = find_suffix(row.get("suffixes", ()), suffix)
    if suffix and meaning is None and not row.get("loose"):
        return None
    return CpuName(
        vendor=line["vendor"],
        generation=filled(row.get("generation"), groups),
        tier=filled(row.get("tier"), groups),
        suffix=(suffix.title() if row.get("title") else suffix) or None,
        suffix_meaning=meaning[0] if meaning else None,
        segment=meaning[1] if meaning and len(meaning) > 1 else row.get("segment", line["segment"]),
        source=read_table("cpus")["sources"][row["source"]],
    )


def written_suffix(row: dict[str, Any], groups: dict[str, str]) -> str:
    """The suffix that the row fixes, or the one in the name, in the vendor's spelling."""
    suffix: str = row.get("suffix") or groups.get("suffix") or groups.get("level", "")
    aliases: dict[str, str] = row.get("aliases", {})
    return aliases.get(suffix, suffix)


def find_suffix(tables: tuple[str, ...] | list[str], suffix: str) -> list[str] | None:
    """A suffix's meaning, and its segment where it settles one, from the first table that has it."""
    for table in tables:
        entry: list[str] | None = read_table("cpus")["suffixes"][table].get(suffix)
        if entry is not None:
            return entry
    return None


def filled(template: str | None, groups: dict[str, str]) -> str | None:
    """The template with the pattern's groups in it; None without one."""
    return None if template is None else " ".join(Template().vformat(template, (), groups).split())
