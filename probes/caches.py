"""Cache sizes in total over the machine's online cores; a cache that several CPUs share counts once."""

from dataclasses import dataclass

from probes.cpusets import iterate_cpus, parse_cpu_list, parse_cpu_mask
from probes.hardware import CacheSizes
from probes.reading import Root, parse_int
from probes.topology import CPU_FOLDER, Topology, read_present

_UNITS = {"K": 1024, "M": 1024**2, "G": 1024**3}
_KINDS = {(1, "Data"): "l1d", (1, "Instruction"): "l1i", (2, ""): "l2", (3, ""): "l3"}
# SPARC kernels have no cache folders; these files hold bytes, one cache a CPU as far as they tell.
_SPARC_FILES = {"l1d": "l1_dcache_size", "l1i": "l1_icache_size", "l2": "l2_cache_size"}


@dataclass(frozen=True, slots=True)
class Cache:
    kind: str  # l1d, l1i, l2 or l3
    size_bytes: int | None
    cpus: int  # the set that shares it


def read_caches(root: Root, topology: Topology) -> list[Cache]:
    """Every cache of the online CPUs, once each."""
    caches: dict[tuple[str, int], Cache] = {}
    seen: dict[str, int] = {}  # index name -> CPUs whose cache of that index is known: spares most of the reads
    for cpu in iterate_cpus(topology.online & read_present(root)):
        folder = f"{CPU_FOLDER}/cpu{cpu}/cache"
        for index in root.list(folder):
            if not index.startswith("index") or seen.get(index, 0) >> cpu & 1:
                continue
            if cache := _read_cache(root, f"{folder}/{index}", cpu, topology):
                seen[index] = seen.get(index, 0) | cache.cpus
                caches.setdefault((cache.kind, cache.cpus), cache)
    return list(caches.values()) or _read_sparc(root, topology)


def sum_caches(caches: list[Cache]) -> CacheSizes:
    """A kind's total is unknown when the size of one of its caches is."""
    totals: dict[str, int | None] = {}
    for cache in caches:
        known = totals.get(cache.kind, 0)
        totals[cache.kind] = None if known is None or cache.size_bytes is None else known + cache.size_bytes
    return CacheSizes(**totals)


def parse_cache_size(text: str | None) -> int | None:
    """`48K` as bytes."""
    text = (text or "").strip()
    unit = _UNITS.get(text[-1:].upper(), 1)
    number = parse_int(text[:-1] if unit > 1 else text)
    return number * unit if number is not None and number > 0 else None


def _read_cache(root: Root, folder: str, cpu: int, topology: Topology) -> Cache | None:
    level = root.read_int(f"{folder}/level")
    kind = _KINDS.get((level, (root.read(f"{folder}/type") or "").strip() if level == 1 else "")) if level else None
    if kind is None:
        return None
    shared = parse_cpu_mask(root.read(f"{folder}/shared_cpu_map"))
    shared = shared or parse_cpu_list(root.read(f"{folder}/shared_cpu_list")) or topology.core_of(cpu)
    return Cache(kind, parse_cache_size(root.read(f"{folder}/size")), (shared | 1 << cpu) & topology.online)


def _read_sparc(root: Root, topology: Topology) -> list[Cache]:
    found = []
    for cpu in iterate_cpus(topology.online & read_present(root)):
        for kind, name in _SPARC_FILES.items():
            if size := root.read_int(f"{CPU_FOLDER}/cpu{cpu}/{name}"):
                found.append(Cache(kind, size, 1 << cpu))
    return found
