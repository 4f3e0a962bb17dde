"""Which CPUs are a hybrid part's performance, efficiency and low-power cores."""

from collections.abc import Mapping
from dataclasses import dataclass

from probes.caches import Cache
from probes.cpuinfo import CpuInfo
from probes.cpusets import iterate_cpus, parse_cpu_list, unite_cpus
from probes.names.core_designs import find_design, has_dense_cores, may_be_hybrid
from probes.names.cpu_identity import CpuIdentity
from probes.reading import Root
from probes.topology import CPU_FOLDER, Topology, read_present

# Capacities, and maximum clocks, of one kind of core differ by a few percent; kinds differ by far more (cpu_capacity
# is scaled to 1024 for the fastest core: little cores of shipping parts lie between 160 and 650; AMD's dense cores
# reach 65 to 72 % of the clock of their neighbours).
SAME_KIND_FRACTION = 0.85


@dataclass(frozen=True, slots=True)
class CoreKinds:
    """Sets of CPUs (probes.cpusets), disjoint; there are at least two kinds."""

    performance: int
    efficiency: int
    low_power: int = 0


def read_core_kinds(root: Root, online: int) -> CoreKinds | None:
    """What the kernel says; None where all cores are of one kind, or nothing tells of every CPU.

    Intel: a PMU for each kind (cpu_core and cpu_atom from kernel 5.13 on, cpu_lowpower from 6.13). Others:
    cpu_capacity, the lowest kind being the efficient one.
    """
    pmus = ("cpu_core", "cpu_atom", "cpu_lowpower")
    core, atom, low_power = ((parse_cpu_list(root.read(f"/sys/devices/{pmu}/cpus")) or 0) & online for pmu in pmus)
    if core and (atom or low_power):
        kinds = CoreKinds(core & ~atom & ~low_power, atom & ~low_power, low_power)
        return kinds if core | atom | low_power == online and not core & (atom | low_power) else None
    present = online & read_present(root)
    if not root.exists(f"{CPU_FOLDER}/cpu{next(iterate_cpus(present), 0)}/cpu_capacity"):
        return None
    capacities = {cpu: root.read_int(f"{CPU_FOLDER}/cpu{cpu}/cpu_capacity") for cpu in iterate_cpus(present)}
    return split_by_speed({cpu: capacity for cpu, capacity in capacities.items() if capacity and capacity > 0}, online)


def splits_no_core(kinds: CoreKinds, topology: Topology) -> bool:
    """Whether the threads of each core are of one kind; else what told the kinds, or the cores, is garbled."""
    sets = (kinds.performance, kinds.efficiency, kinds.low_power)
    return all(sum(1 for cpus in sets if core & cpus) == 1 for core in topology.cores or ())


@dataclass(frozen=True, slots=True)
class Witnesses:
    """What betrays kinds of core where the kernel does not name them."""

    topology: Topology
    caches: list[Cache]
    cpuinfo: CpuInfo
    identity: CpuIdentity
    maximum_hz: Mapping[int, int]


def guess_core_kinds(seen: Witnesses) -> CoreKinds | None:
    """Intel's kinds by their second-level caches, Arm's by their designs, those of AMD's models with dense cores
    by their clocks."""
    vendor = seen.identity.vendor_id
    if vendor == "GenuineIntel" and may_be_hybrid(seen.identity):
        return split_by_shared_cache(seen.topology, seen.caches)
    if seen.identity.cores:
        designs = read_designs(seen.cpuinfo, seen.topology.online)
        return split_by_size({cpu: size for cpu, (_, size) in designs.items()}, seen.topology.online)
    return split_by_speed(seen.maximum_hz, seen.topology.online) if has_dense_cores(seen.identity) else None


def read_designs(cpuinfo: CpuInfo, online: int) -> dict[int, tuple[str, str]]:
    """Name and size of each Arm core that the tables know, by its CPU's number."""
    found = {
        cpu: find_design(cpuinfo.of(cpu, "CPU implementer"), cpuinfo.of(cpu, "CPU part"))
        for cpu in iterate_cpus(online)
    }
    return {cpu: design for cpu, design in found.items() if design}


def split_by_speed(speeds: Mapping[int, int], online: int) -> CoreKinds | None:
    """Two kinds by capacity or clock, the slowest being the efficient one; None where they are much the same, or differ
    by steps without a gap: many a kernel tells a clock by how it ranks each core among its equals.

    speeds: by the CPU's number; of every online CPU, or nothing is told.
    """
    if not speeds or unite_cpus(1 << cpu for cpu in speeds) != online:
        return None
    slowest = min(speeds.values())
    slow = {cpu: speed for cpu, speed in speeds.items() if speed * SAME_KIND_FRACTION <= slowest}
    fast = {cpu: speed for cpu, speed in speeds.items() if cpu not in slow}
    if not fast or max(slow.values()) > min(fast.values()) * SAME_KIND_FRACTION:
        return None
    return CoreKinds(sum(1 << cpu for cpu in fast), sum(1 << cpu for cpu in slow))


def split_by_shared_cache(topology: Topology, caches: list[Cache]) -> CoreKinds | None:
    """Intel's kinds betray themselves: efficiency cores form clusters around an L2, performance cores have one each."""
    second_level = [cache for cache in caches if cache.kind == "l2" and cache.size_bytes is not None]
    shared = unite_cpus(cache.cpus for cache in second_level if (topology.count_cores(cache.cpus) or 0) > 1)
    own = unite_cpus(cache.cpus for cache in second_level) & ~shared
    return CoreKinds(own, shared) if own and shared and own | shared == topology.online else None


def split_by_size(sizes: Mapping[int, str], online: int) -> CoreKinds | None:
    """Arm's designs are built as little cores, or as bigger ones. sizes: every online CPU's, by its number."""
    little = sum(1 << cpu for cpu, size in sizes.items() if size == "little")
    bigger = sum(1 << cpu for cpu, size in sizes.items() if size != "little")
    return CoreKinds(bigger, little) if little and bigger and little | bigger == online else None


def with_low_power(kinds: CoreKinds, caches: list[Cache]) -> CoreKinds:
    """Intel's low-power efficiency cores sit apart from the L3 that the performance cores share."""
    third_level = unite_cpus(cache.cpus for cache in caches if cache.kind == "l3" and cache.size_bytes is not None)
    apart = kinds.efficiency & ~third_level
    if kinds.low_power or not apart or kinds.performance & ~third_level:
        return kinds
    return CoreKinds(kinds.performance, kinds.efficiency & third_level, apart)
