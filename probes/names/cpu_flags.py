"""What x86 instruction flags say of a generation, and whether they agree with family and model.

A hypervisor can hide an instruction but not give one: a flag that a generation cannot have is proof against it,
a flag that is missing proves nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache

from probes.names.tables import read_table


@dataclass(frozen=True, slots=True)
class InstructionClass:
    """Parts with the same instructions. has: flags all of them have, inherited ones included; may: flags that some
    have; ancestors: names of the classes it includes; archspec: archspec's word; refreshes: later parts with the
    very same flags as the class's first."""

    name: str
    has: frozenset[str]
    may: frozenset[str]
    ancestors: frozenset[str]
    archspec: str
    refreshes: tuple[str, ...]


@cache
def instruction_classes(vendor_id: str) -> dict[str, InstructionClass]:
    """The classes of a vendor by name, parents before children as the table has them; none for most vendors."""
    classes: dict[str, InstructionClass] = {}
    for name, row in read_table("microarchitectures")["class"].get(vendor_id, {}).items():
        parents = [classes[parent] for parent in row.get("from", ())]
        classes[name] = InstructionClass(
            name=name,
            has=frozenset(row.get("has", ())).union(*(parent.has for parent in parents)),
            may=frozenset(row.get("may", ())).union(*(parent.may for parent in parents)),
            ancestors=frozenset(parent.name for parent in parents).union(*(parent.ancestors for parent in parents)),
            archspec=row.get("archspec", name),
            refreshes=tuple(row.get("refreshes", ())),
        )
    return classes


def find_class(vendor_id: str, class_name: str | None, brand: str | None) -> InstructionClass | None:
    """The class of a part that bears this name, where it is known; what parts of the name mostly come without, though
    their class has it, is among what this one may have."""
    part = instruction_classes(vendor_id).get(class_name or "")
    cut = read_table("microarchitectures")["cut"]
    if part is None or part.name not in cut["classes"] or not re.search(cut["brand"], brand or ""):
        return part
    return replace(part, has=part.has.difference(cut["flags"]), may=part.may.union(cut["flags"]))


@cache
def marker_flags() -> frozenset[str]:
    """The flags that tell generations apart and that no hypervisor can make up."""
    return frozenset(read_table("microarchitectures")["markers"]["flags"])


@cache
def unlisted_flags() -> frozenset[str]:
    """Markers that most kernels have no name for: their absence proves nothing."""
    return frozenset(read_table("microarchitectures")["markers"]["unlisted"])


def impossible_flags(part: InstructionClass, flags: frozenset[str]) -> list[str]:
    """Markers among `flags` that a part of this class cannot have, sorted."""
    return sorted((flags & marker_flags()) - part.has - part.may)


def hidden_flags(part: InstructionClass, flags: frozenset[str]) -> list[str]:
    """Markers that every part of this class has and `flags` lacks, sorted; without what most kernels do not show."""
    return sorted((part.has & marker_flags()) - unlisted_flags() - flags)


def smallest_classes(vendor_id: str, flags: frozenset[str]) -> list[InstructionClass]:
    """The least capable classes that explain every marker among `flags`: usually one, none where no class does."""
    seen = flags & marker_flags()
    able = [one for one in instruction_classes(vendor_id).values() if seen <= one.has]
    return [one for one in able if not any(other.has < one.has for other in able)]


def alike_classes(vendor_id: str, part: InstructionClass) -> list[InstructionClass]:
    """The more capable classes that differ from this one only in what most kernels do not show."""
    others = instruction_classes(vendor_id).values()
    return [one for one in others if part.name in one.ancestors and one.has - unlisted_flags() <= part.has]


def archspec_word(vendor_id: str, part: InstructionClass, flags: frozenset[str]) -> str | None:
    """archspec's word for the most capable class, up to the part's own, whose flags are all shown; None: none is."""
    classes = instruction_classes(vendor_id)
    shown = [classes[name] for name in (*part.ancestors, part.name) if classes[name].has <= flags]
    return max(shown, key=lambda one: (len(one.has), one.name)).archspec if shown else None
