"""The fields of a CPU that words settle: its vendor's, its own name's, and why it is called what it is."""

from typing import Any

from probes.names.cpu import CpuName, parse_cpu_name
from probes.names.cpu_identity import CpuIdentity
from probes.names.explanation import explain_identification
from probes.names.identification import Identification
from probes.reading import clean

_FRIENDLY_VENDORS = {  # what /proc/cpuinfo says -> what people say
    "GenuineIntel": "Intel",
    "AuthenticAMD": "AMD",
    "HygonGenuine": "Hygon",
    "CentaurHauls": "VIA",
    "Shanghai": "Zhaoxin",
    "generic-loongson-machine": "Loongson",
    "IBM/S390": "IBM",
    "FUJITSU": "Fujitsu",
    "0x489": "SiFive",
    "0x710": "SpacemiT",
    "0x5b7": "T-Head",
    "0x31e": "Andes",
}
_LONGEST_SENTENCE = 600  # letters


def describe_name(vendor_id: str | None, name: str | None, sold_as: str | None = None) -> dict[str, Any]:
    """The fields that the vendor's words settle. sold_as: the marketing name, where the processor's own is not one."""
    said = parse_cpu_name(sold_as or name or "") or CpuName(vendor="")
    return {
        "name": name,
        "vendor": _name_vendor(vendor_id) or _vendor_from_name(name),
        "vendor_id": vendor_id,
        "generation": said.generation,
        "tier": said.tier,
        "suffix": said.suffix,
        "suffix_meaning": said.suffix_meaning,
    }


def _name_vendor(vendor_id: str | None) -> str | None:
    """Arm's implementers and RISC-V's makers are numbers; one that is in no table names nobody."""
    nameless = None if (vendor_id or "").startswith("0x") else vendor_id
    return clean(_FRIENDLY_VENDORS.get(vendor_id or "", nameless))


def _vendor_from_name(name: str | None) -> str | None:
    """POWER names itself only in its model name, some RISC-V cores in the device tree's."""
    starts = {"POWER": "IBM", "sifive,": "SiFive", "thead,": "T-Head", "spacemit,": "SpacemiT", "andestech,": "Andes"}
    return next((vendor for start, vendor in starts.items() if (name or "").startswith(start)), None)


def explain(identity: CpuIdentity, found: Identification) -> str | None:
    """Which signal named the microarchitecture, as a sentence fit to show."""
    return clean(explain_identification(identity, found), _LONGEST_SENTENCE)
