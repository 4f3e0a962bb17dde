"""Cache sizes in total over the machine's online cores; a cache that several CPUs share counts once."""

from dataclasses import dataclass

from probes.cpusets import iterate_cpus, parse_cpu_list, parse_cpu_mask
from probes.hardware import CacheSizes
from probes.reading import Root, parse_int
from probes.topology import CPU_FOLDER, Topology, read_present

_UNITS = {"K": 1024, "M": 1024**2, "G": 1024**3}
_OTHER, _UNKNOWN = "other", "unknown"
_TYPES = {"Data", "Instruction", "Unified"}
_MAX_LEVEL = 9
MAX_CACHE_BYTES = 4 << 30  # one cache; the largest, IBM Z's virtual fourth level, has 2 GB
_KINDS = {(1, "Data"): "l1d", (1, "Instruction"): "l1i", (2, ""): "l2", (3, ""): "l3"}
_COUNTED = set(_KINDS.values())
# SPARC kernels have no cache folders; these files hold bytes, one cache a CPU as far as they tell.
_SPARC_FILES = {"l1d": "l1_dcache_size", "l1i": "l1_icache_size", "l2": "l2_cache_size"}


@dataclass(frozen=True, slots=True)
class Cache:
    kind: str  # l1d, l1i, l2 or l3
    size_bytes: int | None
    cpus: int  # the set that shares it


def read_caches(root: Root, topology: Topology) -> list[Cache]:
    """Every cache of the online CPUs, once each. What could not be read is one of unknown size."""
    caches: dict[tuple[str, int], Cache] = {}
    seen: dict[str, int] = {}  # index name -> CPUs whose cache of that index is known: spares most of the reads
    unread = 0  # CPUs of which at least one cache could not be told
    for cpu in iterate_cpus(topology.online):
        folder = f"{CPU_FOLDER}/cpu{cpu}/cache"
        indices = [name for name in root.list(folder) if name.startswith("index")] if _is_present(root, cpu) else []
        kinds = {name: _read_kind(root, f"{folder}/{name}") for name in indices if not seen.get(name, 0) >> cpu & 1}
        if not indices or _UNKNOWN in kinds.values():
            unread |= 1 << cpu
        for name, kind in kinds.items():
            if kind in _COUNTED:
                cache = _read_cache(root, f"{folder}/{name}", kind, cpu, topology)
                _keep(caches, cache)
                seen[name] = seen.get(name, 0) | (cache.cpus if cache.size_bytes is not None else 0)
    return _with_unread(list(caches.values()), unread) or _read_sparc(root, topology)


def _keep(caches: dict[tuple[str, int], Cache], cache: Cache) -> None:
    """Each CPU tells of a shared cache; one whose file is garbled does not outweigh another."""
    known = caches.get((cache.kind, cache.cpus))
    if known is None or known.size_bytes is None:
        caches[cache.kind, cache.cpus] = cache


def _is_present(root: Root, cpu: int) -> bool:
    return bool(read_present(root) >> cpu & 1)


def _with_unread(caches: list[Cache], unread: int) -> list[Cache]:
    """CPUs whose caches could not be told, as caches of unknown size; unless another CPU told of those it shares."""
    gaps = []
    for kind in {cache.kind for cache in caches}:
        missing = unread
        for cache in caches:
            missing &= ~cache.cpus if cache.kind == kind else missing
        gaps += [Cache(kind, None, missing)] if missing else []
    return caches + gaps


def sum_caches(caches: list[Cache]) -> CacheSizes:
    """A kind's total is unknown when the size of one of its caches is, or when two of them claim the same CPU."""
    totals: dict[str, int | None] = {}
    counted: dict[str, int] = {}
    for cache in caches:
        known = totals.get(cache.kind, 0)
        unclear = known is None or cache.size_bytes is None or counted.get(cache.kind, 0) & cache.cpus
        totals[cache.kind] = None if unclear else (known or 0) + (cache.size_bytes or 0)
        counted[cache.kind] = counted.get(cache.kind, 0) | cache.cpus
    return CacheSizes(**totals)


def parse_cache_size(text: str | None) -> int | None:
    """`48K` as bytes; without its unit it was cut off."""
    text = (text or "").strip()
    unit, number = _UNITS.get(text[-1:].upper()), parse_int(text[:-1])
    if unit is None or number is None or number <= 0:
        return None
    return number * unit if number * unit <= MAX_CACHE_BYTES else None


def _read_kind(root: Root, folder: str) -> str:
    """l1d and so on, _OTHER for a cache that is not counted, _UNKNOWN where level or type cannot be told."""
    level = root.read_int(f"{folder}/level")
    if level is None or not 0 < level <= _MAX_LEVEL:
        return _UNKNOWN
    if level > 1:
        return _KINDS.get((level, ""), _OTHER)
    text = (root.read(f"{folder}/type") or "").strip()
    return _KINDS.get((level, text), _OTHER) if text in _TYPES else _UNKNOWN


def _read_cache(root: Root, folder: str, kind: str, cpu: int, topology: Topology) -> Cache:
    shared = _read_sharers(root, folder, cpu)
    size = parse_cache_size(root.read(f"{folder}/size"))
    if shared is None:  # a core's own caches are told by its core; which cores share a third level is not
        shared, size = topology.core_of(cpu), None if kind == "l3" else size
    elif not shared >> cpu & 1:
        shared, size = 1 << cpu, None
    return Cache(kind, size, shared & topology.online)


def _read_sharers(root: Root, folder: str, cpu: int) -> int | None:
    """The CPUs that share a cache; None where no file tells, without this CPU where what it says is garbled."""
    mask, row = root.read(f"{folder}/shared_cpu_map"), None
    if not (cpus := parse_cpu_mask(mask) or 0) >> cpu & 1:
        row = root.read(f"{folder}/shared_cpu_list")
        cpus = parse_cpu_list(row) or 0
    return None if mask is None and row is None else cpus


def _read_sparc(root: Root, topology: Topology) -> list[Cache]:
    found = []
    for cpu in iterate_cpus(topology.online & read_present(root)):
        for kind, name in _SPARC_FILES.items():
            if size := root.read_int(f"{CPU_FOLDER}/cpu{cpu}/{name}"):
                found.append(Cache(kind, size, 1 << cpu))
    return found
