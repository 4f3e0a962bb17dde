"""The online cores of each kind: how many, of which design, and how fast."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from probes.core_kinds import CoreKinds, read_designs
from probes.cpuinfo import CpuInfo
from probes.cpusets import iterate_cpus
from probes.frequency import fastest
from probes.hardware import CoreCluster
from probes.names.core_designs import hybrid_designs
from probes.names.cpu_identity import CpuIdentity
from probes.topology import Topology

KINDS = ("performance", "efficiency", "low-power")


@dataclass(frozen=True, slots=True)
class Group:
    """A cluster, and which CPUs it is of (a set)."""

    cluster: CoreCluster
    cpus: int


def group_cores(
    topology: Topology, kinds: CoreKinds | None, designs: Mapping[int, str | None], maximum_hz: Mapping[int, int]
) -> tuple[Group, ...]:
    """Performance cores first, then efficiency and low-power ones; cores of one kind are told apart by design."""
    groups: dict[tuple[int, str | None], int] = {}
    for cpu in iterate_cpus(topology.online):
        key = (_rank(kinds, cpu), designs.get(cpu))
        groups[key] = groups.get(key, 0) | 1 << cpu
    ordered = sorted(groups.items(), key=lambda group: (group[0][0], group[1] & -group[1]))
    return tuple(
        Group(
            CoreCluster(
                kind=KINDS[rank] if rank < len(KINDS) else None,
                microarchitecture=design,
                physical_cores=topology.count_cores(cpus),
                logical_cores=cpus.bit_count(),
                max_frequency_hz=fastest(maximum_hz, cpus),
            ),
            cpus,
        )
        for (rank, design), cpus in ordered
    )


def allowed_clusters(groups: tuple[Group, ...], topology: Topology, some: int | None) -> tuple[CoreCluster, ...]:
    """The clusters with what this process may use of each. some: the CPUs that it may use (a set); None: all."""
    return tuple(
        replace(
            group.cluster,
            allowed_physical_cores=topology.count_cores(left),
            allowed_logical_cores=left.bit_count(),
        )
        for group in groups
        for left in (group.cpus if some is None else group.cpus & some,)
    )


def _rank(kinds: CoreKinds | None, cpu: int) -> int:
    """Index into KINDS; behind its end where no kind is known."""
    sets = (kinds.performance, kinds.efficiency, kinds.low_power) if kinds else ()
    return next((rank for rank, cpus in enumerate(sets) if cpus >> cpu & 1), len(KINDS))


def name_designs(
    topology: Topology, cpuinfo: CpuInfo, identity: CpuIdentity, kinds: CoreKinds | None, microarchitecture: str | None
) -> dict[int, str | None]:
    """Each online CPU's core design: Arm names it itself, x86's hybrid parts are in a table, others are all alike."""
    if identity.cores:
        found = read_designs(cpuinfo, topology.online)
        return {cpu: found[cpu][0] if cpu in found else None for cpu in iterate_cpus(topology.online)}
    if kinds is None:
        return dict.fromkeys(iterate_cpus(topology.online), microarchitecture)
    names = hybrid_designs(identity, microarchitecture)
    return {
        cpu: names[rank] if (rank := _rank(kinds, cpu)) < len(names) else None for cpu in iterate_cpus(topology.online)
    }
