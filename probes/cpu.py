"""The CPU: its name, its cores, its caches, its instruction sets."""

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from probes.caches import read_caches, sum_caches
from probes.core_clusters import Group, allowed_clusters, group_cores, name_designs
from probes.core_kinds import CoreKinds, Witnesses, guess_core_kinds, read_core_kinds, splits_no_core, with_low_power
from probes.cpu_naming import describe_name, explain
from probes.cpuinfo import FLAG_KEYS, NAME_KEYS, VENDOR_KEYS, CpuInfo, read_cpuinfo, read_cpuinfo_text
from probes.cpusets import iterate_cpus, parse_cpu_list
from probes.frequency import (
    fastest,
    read_base_frequency,
    read_frequency_driver,
    read_governor,
    read_maximum_frequencies,
)
from probes.hardware import Cpu, Outcome
from probes.instruction_sets import choose_torch_instruction_set, parse_instruction_sets, sve_bits_of
from probes.limits import UsableCores
from probes.names.core_designs import name_part
from probes.names.cpu import name_by_host
from probes.names.cpu_identity import NO_NAME, known_name
from probes.names.cpu_identity import parse_cpuinfo as parse_identity
from probes.names.microarchitecture import identify
from probes.numa import count_nodes_without_cpus, read_nodes
from probes.reading import Root, Unreadable, clean
from probes.topology import CPU_FOLDER, Topology, read_present, read_topology


@dataclass(frozen=True, slots=True)
class CpuReading:
    """The CPU, which of its logical CPUs are online and how they form cores, and what needs explaining. groups: its
    clusters with their CPUs, where the system tells of single ones."""

    cpu: Cpu
    topology: Topology
    reason: str | None = None
    outcome: Outcome = Outcome.OK  # failed: /proc/cpuinfo is there and tells nothing; sysfs has told the rest
    groups: tuple[Group, ...] = ()


def read_cpu(root: Root) -> CpuReading:
    """Raises Unreadable when neither /proc nor /sys tells anything about CPUs."""
    if not root.is_linux:
        from probes.cpu_portable import read_portable_cpu  # costs milliseconds that Linux never needs

        cpu = read_portable_cpu()
        return CpuReading(cpu, Topology((1 << (cpu.logical_cores or 1)) - 1, None, None))
    cpuinfo = read_cpuinfo(root)
    topology = read_topology(root, cpuinfo)
    if not topology.online:
        root.require("/proc/cpuinfo")
        raise Unreadable(Outcome.FAILED, "/proc/cpuinfo names no processor and /sys/devices/system/cpu has none")
    return _assemble(root, cpuinfo, topology)


def _explain_cpuinfo(root: Root, cpuinfo: CpuInfo) -> Unreadable | None:
    """Why the name is missing when sysfs alone told of the CPUs."""
    if cpuinfo.processors or cpuinfo.first(*NAME_KEYS, *VENDOR_KEYS):
        return None
    try:
        root.require("/proc/cpuinfo")
    except Unreadable as unreadable:
        return unreadable
    return Unreadable(Outcome.FAILED, "/proc/cpuinfo names no processor")


def _assemble(root: Root, cpuinfo: CpuInfo, topology: Topology) -> CpuReading:
    identity = parse_identity(read_cpuinfo_text(root))
    found = identify(identity)
    caches, maximum_hz = read_caches(root, topology), read_maximum_frequencies(root, topology.online)
    witnesses = Witnesses(topology, caches, cpuinfo, identity, maximum_hz)
    kinds = read_core_kinds(root, topology.online) or guess_core_kinds(witnesses)
    kinds = with_low_power(kinds, caches) if kinds and identity.vendor_id == "GenuineIntel" else kinds
    kinds = kinds if kinds and splits_no_core(kinds, topology) else None
    leader = next(iterate_cpus(kinds.performance if kinds else topology.online))
    vendor_id, name = decode_identity(cpuinfo, leader)
    groups = group_cores(topology, kinds, name_designs(topology, cpuinfo, identity, kinds, found.name), maximum_hz)
    cpu = Cpu(
        **describe_name(vendor_id, name, _name_by_host(root, found.name) if identity.cores else None),
        architecture=platform.machine() if root.is_host else infer_architecture(cpuinfo),
        microarchitecture=found.name,
        identified_by=explain(identity, found),
        **_count(root, topology, kinds),
        clusters=tuple(group.cluster for group in groups),
        cache_bytes=sum_caches(caches),
        base_frequency_hz=read_base_frequency(root, leader, name),
        max_frequency_hz=fastest(maximum_hz, topology.online),
        governor=read_governor(root, leader),
        frequency_driver=read_frequency_driver(root, leader),
    )
    cpu = with_instruction_sets(cpu, cpuinfo, read_sve_bits(root, found.name), os.environ if root.is_host else {})
    if missing := _explain_cpuinfo(root, cpuinfo):
        absent = missing.outcome is Outcome.ABSENT
        return CpuReading(cpu, topology, missing.reason, Outcome.OK if absent else missing.outcome, groups)
    return CpuReading(cpu, topology, found.reason or _explain_name(cpuinfo, name), groups=groups)


def _explain_name(cpuinfo: CpuInfo, name: str | None) -> str | None:
    """Why a processor that is listed has no name, where the kernel says so."""
    if name is not None or cpuinfo.first(*NAME_KEYS) != NO_NAME:
        return None
    return f"/proc/cpuinfo has no name for the processor (it says “{NO_NAME}”)"


def _name_by_host(root: Root, microarchitecture: str | None) -> str | None:
    maker, product = (clean(root.read(f"/sys/class/dmi/id/{field}")) for field in ("sys_vendor", "product_name"))
    return name_by_host(maker, product, microarchitecture)


def _count(root: Root, topology: Topology, kinds: CoreKinds | None) -> dict[str, Any]:
    """The fields that count."""
    return {
        "sockets": topology.sockets,
        "physical_cores": len(topology.cores) if topology.cores is not None else None,
        "logical_cores": topology.online.bit_count(),
        "performance_cores": topology.count_cores(kinds.performance) if kinds else None,
        "efficiency_cores": topology.count_cores(kinds.efficiency) if kinds else None,
        "low_power_cores": topology.count_cores(kinds.low_power) if kinds else None,
        "threads_per_core": max((core.bit_count() for core in topology.cores or ()), default=None),
        "offline_logical_cores": count_offline(root, topology.online),
        "numa_nodes": len(read_nodes(root)) or None,
        "numa_nodes_without_cpus": count_nodes_without_cpus(root),
    }


def with_instruction_sets(cpu: Cpu, cpuinfo: CpuInfo, sve_bits: int | None, environment: Mapping[str, str]) -> Cpu:
    sets = parse_instruction_sets(cpuinfo.first(*FLAG_KEYS) or "", cpuinfo.first("cpu") or "")
    chosen = choose_torch_instruction_set(cpu.architecture, sets, sve_bits, environment)
    return replace(cpu, instruction_sets=sets, torch_instruction_set=chosen)


def read_sve_bits(root: Root, microarchitecture: str | None) -> int | None:
    """The width of SVE's vectors that programs get: the kernel's default in bytes, else what the design has."""
    told = root.read_int("/proc/sys/abi/sve_default_vector_length")
    if told and 16 <= told <= 256:
        return told * 8
    widths = [sve_bits_of(design) for design in (microarchitecture or "").split(" + ")]
    return widths[0] if len(set(widths)) == 1 else None  # Linux gives all kinds of core the width they share


def count_offline(root: Root, online: int) -> int | None:
    """CPUs that are present and switched off; None without sysfs."""
    present = parse_cpu_list(root.read(f"{CPU_FOLDER}/present")) or read_present(root)
    return (present & ~online).bit_count() if present else None


def decode_identity(cpuinfo: CpuInfo, cpu: int) -> tuple[str | None, str | None]:
    """Vendor and model name as lscpu gives them; ARM's are numbers, which a table names."""
    vendor = known_name(cpuinfo.of(cpu, *VENDOR_KEYS) or cpuinfo.first(*VENDOR_KEYS))
    name = known_name(cpuinfo.of(cpu, *NAME_KEYS) or cpuinfo.first(*NAME_KEYS))
    if "CPU implementer" in {**cpuinfo.common, **cpuinfo.processors.get(cpu, {})}:
        maker, part = name_part(cpuinfo.of(cpu, "CPU implementer"), cpuinfo.of(cpu, "CPU part"))
        return clean(maker or vendor), clean(part or name)
    return clean(vendor), clean(name)


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


def with_limits(reading: CpuReading, limits: UsableCores) -> Cpu:
    """The CPU with what this process may use of it, in all and of each kind of core."""
    return replace(
        reading.cpu,
        usable_cores=limits.cores,
        usable_cores_limit=limits.limit,
        allowed_logical_cores=limits.allowed,
        clusters=allowed_clusters(reading.groups, reading.topology, limits.some) or reading.cpu.clusters,
    )
