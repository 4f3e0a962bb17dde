"""The CPU: its name, its cores, its caches, its instruction sets."""

import platform
import sys
import tomllib
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from probes.caches import Cache, read_caches, sum_caches
from probes.cpuinfo import FLAG_KEYS, NAME_KEYS, VENDOR_KEYS, CpuInfo, read_cpuinfo, read_cpuinfo_text
from probes.cpusets import iterate_cpus
from probes.hardware import Cpu, Outcome
from probes.names.cpu import CpuName, parse_cpu_name
from probes.names.cpu_identity import parse_cpuinfo
from probes.names.microarchitecture import identify
from probes.numa import read_nodes
from probes.reading import Root, Unreadable, clean, parse_int
from probes.topology import CPU_FOLDER, Topology, read_present, read_topology

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
_MAX_FLAGS = 2000  # an x86 CPU of 2026 has about 170


@dataclass(frozen=True, slots=True)
class CpuReading:
    """The CPU, which of its logical CPUs are online (a set, for the limits), and what needs explaining."""

    cpu: Cpu
    online: int
    reason: str | None = None


def read_cpu(root: Root) -> CpuReading:
    """Raises Unreadable when neither /proc nor /sys tells anything about CPUs."""
    if root.is_host and not sys.platform.startswith("linux"):
        return read_portable()
    cpuinfo = read_cpuinfo(root)
    topology = read_topology(root, cpuinfo)
    if not topology.online:
        root.require("/proc/cpuinfo")
        raise Unreadable(Outcome.FAILED, "/proc/cpuinfo names no processor and /sys/devices/system/cpu has none")
    return _assemble(root, cpuinfo, topology)


def _explain_cpuinfo(root: Root, cpuinfo: CpuInfo) -> str | None:
    """Why the name is missing when sysfs alone told of the CPUs."""
    if cpuinfo.processors or cpuinfo.common:
        return None
    try:
        root.require("/proc/cpuinfo")
    except Unreadable as unreadable:
        return unreadable.reason
    return "/proc/cpuinfo names no processor"


def _assemble(root: Root, cpuinfo: CpuInfo, topology: Topology) -> CpuReading:
    architecture = platform.machine() if root.is_host else infer_architecture(cpuinfo)
    leader = _leading_cpu(topology)
    vendor_id, name = decode_identity(cpuinfo, leader)
    identification = identify(parse_cpuinfo(read_cpuinfo_text(root)))
    by_name = (parse_cpu_name(name) if name else None) or CpuName(vendor="")
    caches = read_caches(root, topology)
    performance, efficiency = choose_kinds(topology, caches, vendor_id)
    cpu = Cpu(
        name=name,
        vendor=clean(_FRIENDLY_VENDORS.get(vendor_id or "", vendor_id)) or _vendor_from_name(name),
        vendor_id=vendor_id,
        architecture=architecture,
        microarchitecture=identification.name,
        generation=by_name.generation,
        tier=by_name.tier,
        suffix=by_name.suffix,
        sockets=topology.sockets,
        physical_cores=len(topology.cores) if topology.cores is not None else None,
        logical_cores=topology.online.bit_count(),
        performance_cores=topology.count_cores(performance),
        efficiency_cores=topology.count_cores(efficiency),
        numa_nodes=len(read_nodes(root)) or None,
        cache_bytes=sum_caches(caches),
        instruction_sets=parse_instruction_sets(cpuinfo),
        max_frequency_hz=_read_max_frequency(root, topology),
    )
    return CpuReading(cpu, topology.online, _explain_cpuinfo(root, cpuinfo) or identification.reason)


def _leading_cpu(topology: Topology) -> int:
    """A CPU to take the name from: of a hybrid part, one of the fast cores."""
    return next(iterate_cpus(topology.performance or topology.online))


def choose_kinds(topology: Topology, caches: list[Cache], vendor_id: str | None) -> tuple[int | None, int | None]:
    """Performance and efficiency CPUs, as sets; None, None unless there are both.

    Where the kernel names no kinds, Intel's betray themselves: efficiency cores come in clusters that share an L2,
    performance cores have one each.
    """
    if topology.performance or topology.efficiency or vendor_id != "GenuineIntel":
        return topology.performance, topology.efficiency
    second_level = [cache for cache in caches if cache.kind == "l2"]
    shared = sum(cache.cpus for cache in second_level if (topology.count_cores(cache.cpus) or 0) > 1)
    own = sum(cache.cpus for cache in second_level) & ~shared
    return (own, shared) if own and shared else (None, None)


def decode_identity(cpuinfo: CpuInfo, cpu: int) -> tuple[str | None, str | None]:
    """Vendor and model name as lscpu gives them; ARM's numbers are looked up in arm_parts.toml."""
    vendor = cpuinfo.of(cpu, *VENDOR_KEYS) or cpuinfo.first(*VENDOR_KEYS)
    name = cpuinfo.of(cpu, *NAME_KEYS) or cpuinfo.first(*NAME_KEYS)
    if "CPU implementer" in {**cpuinfo.common, **cpuinfo.processors.get(cpu, {})}:
        maker, part = find_arm_part(cpuinfo.of(cpu, "CPU implementer"), cpuinfo.of(cpu, "CPU part"))
        return clean(maker or vendor), clean(part or name)
    return clean(vendor), clean(name)


def find_arm_part(implementer: str | None, part: str | None) -> tuple[str | None, str | None]:
    row = _load_arm_parts().get(_hexadecimal(implementer), {})
    return row.get("name"), row.get("parts", {}).get(_hexadecimal(part))


def _hexadecimal(text: str | None) -> int | None:
    return parse_int(text, 16) if text and text.startswith("0x") else None


@lru_cache(maxsize=1)
def _load_arm_parts() -> dict[int | None, dict[str, Any]]:
    table = tomllib.loads(Path(__file__).with_name("arm_parts.toml").read_text("utf-8"))["implementers"]
    return {
        int(number, 16): {**row, "parts": {int(part, 16): name for part, name in row.get("parts", {}).items()}}
        for number, row in table.items()
    }


def _vendor_from_name(name: str | None) -> str | None:
    """POWER names itself only in its model name."""
    return "IBM" if name and name.startswith("POWER") else None


def infer_architecture(cpuinfo: CpuInfo) -> str | None:
    """uname's machine from the way /proc/cpuinfo is written; None where several would write it so."""
    flags = (cpuinfo.first("flags", "features") or "").split()
    if cpuinfo.first("flags") and cpuinfo.first("vendor_id") and cpuinfo.first("vendor_id") != "IBM/S390":
        return "x86_64" if "lm" in flags else "i686"
    if cpuinfo.first("CPU implementer"):
        generation = cpuinfo.first("CPU architecture") or ""
        return "aarch64" if generation.startswith(("8", "9", "AArch64")) else "armv7l" if generation == "7" else "arm"
    if isa := cpuinfo.first("isa"):
        return "riscv64" if isa.startswith("rv64") else "riscv32" if isa.startswith("rv32") else None
    if (cpuinfo.first("vendor_id") or "").startswith("IBM/S390"):
        return "s390x"
    if (cpuinfo.first("cpu") or "").startswith("POWER"):
        # pSeries and PowerNV boot either way; POWER7 and older run big-endian only.
        return "ppc64" if (cpuinfo.first("cpu") or "")[5:6] in ("5", "6", "7") else "ppc64le"
    if "sun4" in (cpuinfo.first("type") or ""):
        return "sparc64"
    if cpuinfo.first("arch") == "IA-64":
        return "ia64"
    return "loongarch64" if "loongarch64" in (cpuinfo.first("ISA") or "").split() else None


def parse_instruction_sets(cpuinfo: CpuInfo) -> tuple[str, ...]:
    """The kernel's flags, sorted, each once. RISC-V's `isa` string is split at its underscores."""
    text = cpuinfo.first(*FLAG_KEYS) or ""
    words = text.replace("_", " ") if text.startswith("rv") else text
    return tuple(sorted({word for word in words.split()[:_MAX_FLAGS] if word.isprintable() and len(word) < 64}))


def _read_max_frequency(root: Root, topology: Topology) -> int | None:
    """The fastest core's rated maximum (cpufreq counts in kHz); None in most virtual machines."""
    cpus = iterate_cpus(topology.online & read_present(root))
    paths = (f"{CPU_FOLDER}/cpu{cpu}/cpufreq/cpuinfo_max_freq" for cpu in cpus)
    found = max((root.read_int(path) or 0 for path in paths), default=0)
    return found * 1000 if found > 0 else None


def read_portable() -> CpuReading:
    """macOS and Windows: psutil counts, py-cpuinfo names (it sleeps a second, so never on Linux)."""
    import psutil
    from cpuinfo import get_cpu_info

    described = get_cpu_info()
    logical = psutil.cpu_count(logical=True) or 1
    vendor = described.get("vendor_id_raw")
    cpu = Cpu(
        name=clean(described.get("brand_raw")),
        vendor=clean(_FRIENDLY_VENDORS.get(vendor or "", vendor)),
        vendor_id=clean(vendor),
        architecture=platform.machine() or None,
        physical_cores=psutil.cpu_count(logical=False),
        logical_cores=logical,
        instruction_sets=tuple(sorted(described.get("flags", ()))),
        max_frequency_hz=(described.get("hz_advertised") or [None])[0],
    )
    return CpuReading(cpu, (1 << logical) - 1)


def with_limits(cpu: Cpu, usable: float | None, limit: str | None) -> Cpu:
    return replace(cpu, usable_cores=usable, usable_cores_limit=limit)
