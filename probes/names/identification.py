"""What a processor was found to be, and which signal said so."""

from __future__ import annotations

from dataclasses import dataclass

# The signals that a name can rest on, as `believed` says them.
FAMILY_AND_MODEL = "family and model"
IMPLEMENTER_AND_PART = "implementer and part"
FLAGS = "flags"
BRAND = "brand string"
APPLE_FAMILY = "hw.cpufamily"
VERSION_REGISTER = "processor version register"
PROCESSOR_LINE = "processor line"
UARCH = "uarch"
RISCV_IDS = "mvendorid and marchid"
MACHINE_TYPE = "machine type"


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


def known(name: str | None, signal: str, subject: str) -> Identification:
    """The name that a signal gave, or why it gave none."""
    if name is None:
        return Identification(reason=f"{subject} is not in the table of processors.")
    return Identification(name=name, believed=signal, archspec=plain_archspec(name))


def plain_archspec(name: str) -> str:
    """archspec's word where it is the code name itself: `Neoverse V2` is `neoverse_v2`, `Apple M1` is `m1`."""
    word = name.removeprefix("Apple ").lower()
    return word.replace(" ", "_").replace("-", "_" if word.startswith(("cortex", "neoverse")) else "")
