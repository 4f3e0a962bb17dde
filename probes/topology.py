"""Which CPUs are online, and how they form cores and sockets.

Read from /sys/devices/system/cpu as described in the kernel's Documentation/admin-guide/cputopology.rst; where a
kernel or a capture lacks a file, /proc/cpuinfo answers instead.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from probes.cpuinfo import CpuInfo
from probes.cpusets import MAX_CPUS, iterate_cpus, parse_cpu_list, parse_cpu_mask, unite_cpus
from probes.reading import Root, parse_int

CPU_FOLDER = "/sys/devices/system/cpu"


@dataclass(frozen=True, slots=True)
class Topology:
    """`online` and each value of `cores` are sets of CPUs (probes.cpusets); None where nothing tells."""

    online: int
    cores: tuple[int, ...] | None
    sockets: int | None

    def core_of(self, cpu: int) -> int:
        """The CPUs that share a core with this one, itself included."""
        return next((core for core in self.cores or () if core >> cpu & 1), 1 << cpu)

    def count_cores(self, cpus: int | None) -> int | None:
        """Physical cores with a CPU in the set."""
        if cpus is None or self.cores is None:
            return None
        return sum(1 for core in self.cores if core & cpus)


def read_topology(root: Root, cpuinfo: CpuInfo) -> Topology:
    online = read_online(root, cpuinfo)
    return Topology(online, _read_cores(root, online, cpuinfo), _read_sockets(root, online, cpuinfo))


def read_online(root: Root, cpuinfo: CpuInfo) -> int:
    """The set of CPUs that run.

    The kernel's own list rules; without it each CPU's own switch (CPU 0 often has none: it cannot go offline); without
    sysfs /proc/cpuinfo. One exception: the kernel removes a CPU's topology folder and its entry in /proc/cpuinfo when
    it goes offline, so a CPU that still has both is counted, whatever list and switch say.
    """
    listed = read_listed(root)
    return listed | _read_described(root, ~listed, cpuinfo) or sum(1 << cpu for cpu in cpuinfo.processors)


def read_listed(root: Root) -> int:
    """CPUs that the kernel lists or switches as online: the ones it may schedule on. 0 without sysfs."""
    if listed := parse_cpu_list(root.read(f"{CPU_FOLDER}/online")):
        return listed
    present = list(iterate_cpus(read_present(root)))
    switches = {cpu: root.read_int(f"{CPU_FOLDER}/cpu{cpu}/online") for cpu in present}
    placed = {cpu for cpu in present if switches[cpu] is None and root.exists(f"{CPU_FOLDER}/cpu{cpu}/topology")}
    return sum(1 << cpu for cpu, on in switches.items() if on == 1 or (on is None and (cpu in placed or not placed)))


def _read_described(root: Root, among: int, cpuinfo: CpuInfo) -> int:
    """CPUs of a set that have both a topology folder and an entry in /proc/cpuinfo."""
    present = iterate_cpus(read_present(root) & among)
    return sum(
        1 << cpu for cpu in present if cpu in cpuinfo.processors and root.exists(f"{CPU_FOLDER}/cpu{cpu}/topology")
    )


def read_present(root: Root) -> int:
    """CPUs that have a folder in sysfs; there is nothing to read there of any other."""
    return root.remember("present", lambda: _list_present(root))


def _list_present(root: Root) -> int:
    names = (name.removeprefix("cpu") for name in root.list(CPU_FOLDER) if name.startswith("cpu"))
    numbers = {int(name) for name in names if name.isascii() and name.isdigit() and len(name) < 8}
    return sum(1 << number for number in numbers if number < MAX_CPUS)


def _read_cores(root: Root, online: int, cpuinfo: CpuInfo) -> tuple[int, ...] | None:
    """One set of CPUs a core: siblings that sysfs lists, else equal ids of sysfs or of /proc/cpuinfo.

    A source is believed when it places every CPU, and none twice; half a count would be a wrong one.
    """
    siblings = _read_sibling_sets(root, online, "core_cpus", "thread_siblings")
    if _is_partition(siblings, online):
        return siblings
    by_id = _group(online, lambda cpu: _core_id(root, cpu)) or _group(online, lambda cpu: _cpuinfo_core(cpuinfo, cpu))
    return by_id if by_id and _agree(by_id, siblings) else None


def _agree(groups: tuple[int, ...], sets: tuple[int, ...]) -> bool:
    """Whether most sets, of which some are garbled, are groups: hypervisors number cores as they like."""
    return not sets or 2 * len(set(sets) & set(groups)) > len(sets)


def _core_id(root: Root, cpu: int) -> Hashable:
    core = _read_topology_int(root, cpu, "core_id")
    return None if core is None or core < 0 else (_read_topology_int(root, cpu, "physical_package_id"), core)


def _cpuinfo_core(cpuinfo: CpuInfo, cpu: int) -> Hashable:
    own = cpuinfo.processors.get(cpu, {})
    core = parse_int(own.get("core id"))
    return None if core is None else (own.get("physical id"), core)


def _read_sockets(root: Root, online: int, cpuinfo: CpuInfo) -> int | None:
    """Distinct packages: by id where the kernel knows it (-1: it does not), else by the siblings it lists."""
    if packages := _group(online, _package_key(root, online)):
        return len(packages)
    siblings = _read_sibling_sets(root, online, "package_cpus", "core_siblings")
    if _is_partition(siblings, online):
        return len(siblings)
    packages = _group(online, lambda cpu: parse_int(cpuinfo.processors.get(cpu, {}).get("physical id")))
    return len(packages) if packages else None


def _package_key(root: Root, online: int) -> Callable[[int], Hashable]:
    """On s390 sockets are numbered within their book, and books within their drawer."""
    first = next(iterate_cpus(online), 0)
    above = [name for name in ("drawer_id", "book_id") if _read_topology_int(root, first, name) is not None]

    def key(cpu: int) -> Hashable:
        package = _read_topology_int(root, cpu, "physical_package_id")
        if package is None or package < 0:
            return None
        return (package, *(_read_topology_int(root, cpu, name) for name in above))

    return key


def _group(online: int, key_of: Callable[[int], Hashable]) -> tuple[int, ...] | None:
    """CPUs with equal keys together; None as soon as one has no key."""
    groups: dict[Hashable, int] = {}
    for cpu in iterate_cpus(online):
        key = key_of(cpu)
        if key is None:
            return None
        groups[key] = groups.get(key, 0) | 1 << cpu
    return tuple(groups.values()) or None


def _read_sibling_sets(root: Root, online: int, *names: str) -> tuple[int, ...]:
    """Each different set once; one that lacks the very CPU it is of is garbled."""
    sets: dict[int, None] = {}
    for cpu in iterate_cpus(online & read_present(root)):
        siblings = _read_siblings(root, cpu, *names) & online
        if siblings >> cpu & 1:
            sets.setdefault(siblings)
    return tuple(sets)


def _is_partition(sets: tuple[int, ...], whole: int) -> bool:
    return whole != 0 and sum(cpus.bit_count() for cpus in sets) == whole.bit_count() and not whole & ~unite_cpus(sets)


def _read_topology_int(root: Root, cpu: int, name: str) -> int | None:
    return root.read_int(f"{CPU_FOLDER}/cpu{cpu}/topology/{name}") if read_present(root) >> cpu & 1 else None


def _read_siblings(root: Root, cpu: int, *names: str) -> int:
    """The first of these sets that the kernel gives (newer name first), as mask or as list; 0 without any."""
    for name in names if read_present(root) >> cpu & 1 else ():
        path = f"{CPU_FOLDER}/cpu{cpu}/topology/{name}"
        if siblings := parse_cpu_mask(root.read(path)) or parse_cpu_list(root.read(f"{path}_list")):
            return siblings
    return 0
