"""How much memory there is, and how much a new process could take now."""

import sys
from dataclasses import dataclass

from probes.cgroups import Cgroups, Levels
from probes.hardware import Memory, Outcome
from probes.limits import read_memory_nodes
from probes.numa import read_nodes, read_nodes_total, sum_node_bytes
from probes.reading import Root, Unreadable, parse_fields, parse_int

# cgroup v1 writes "no limit" as the largest multiple of a page below 2**63; no machine has 2**60 bytes.
NO_LIMIT_BYTES = 1 << 60
# Older kernels count a node's reserved pages in and MemTotal's out, so the nodes exceed it by a few percent.
# Nodes that hold clearly less than MemTotal do not tell of all memory (hot-added memory in some virtual machines).
NODES_COVER_FRACTION = 0.97


@dataclass(frozen=True, slots=True)
class MemoryCgroup:
    """One level's limit and what it uses beyond page cache that the kernel would drop (inactive files)."""

    limit_bytes: int
    used_bytes: int | None


def read_memory(root: Root) -> Memory:
    """Raises Unreadable when neither /proc/meminfo nor the NUMA nodes say how much there is."""
    if root.is_host and not sys.platform.startswith("linux"):
        return read_portable()
    meminfo = parse_meminfo(root.read("/proc/meminfo") or "")
    cgroups = Cgroups(root)
    total = choose_total(root, meminfo.get("MemTotal"), cgroups)
    if total is None:
        root.require("/proc/meminfo")
        raise Unreadable(Outcome.FAILED, "/proc/meminfo has no MemTotal and no NUMA node tells its size")
    available = estimate_available(meminfo)
    groups = read_memory_cgroups(root, cgroups)
    return Memory(
        total_bytes=total,
        available_bytes=available,
        limit_bytes=min((group.limit_bytes for group in groups), default=None),
        usable_bytes=compute_usable(available, groups),
        swap_total_bytes=meminfo.get("SwapTotal"),
    )


def choose_total(root: Root, mem_total: int | None, cgroups: Cgroups) -> int | None:
    """Bytes on the NUMA nodes this process may use; /proc/meminfo's MemTotal where the nodes do not tell of all."""
    everything = read_nodes_total(root)
    if everything is None or (mem_total is not None and everything < NODES_COVER_FRACTION * mem_total):
        return mem_total
    nodes, allowed = read_nodes(root), read_memory_nodes(root, cgroups)
    if allowed is not None and any(allowed >> node.number & 1 for node in nodes):
        nodes = [node for node in nodes if allowed >> node.number & 1]
    return sum_node_bytes(nodes) or mem_total


def parse_meminfo(text: str) -> dict[str, int]:
    """/proc/meminfo in bytes: `MemTotal: 24684092 kB`."""
    sizes: dict[str, int] = {}
    for key, value in parse_fields(text).items():
        words = value.split()
        number = parse_int(words[0]) if words else None
        if number is not None and number >= 0:
            sizes[key] = number * 1024 if words[1:2] == ["kB"] else number
    return sizes


def estimate_available(meminfo: dict[str, int]) -> int | None:
    """MemAvailable; before kernel 3.14 free memory and page cache stand for it, as in free(1)."""
    if "MemAvailable" in meminfo:
        return meminfo["MemAvailable"]
    if "MemFree" not in meminfo:
        return None
    return sum(meminfo.get(key, 0) for key in ("MemFree", "Buffers", "Cached", "SReclaimable"))


def compute_usable(available: int | None, groups: list[MemoryCgroup]) -> int | None:
    """What a new process could take now: the machine's available memory and each cgroup's headroom, the least."""
    headrooms = [max(0, group.limit_bytes - group.used_bytes) for group in groups if group.used_bytes is not None]
    headrooms += [group.limit_bytes for group in groups if group.used_bytes is None]
    return min([*headrooms, *([available] if available is not None else [])], default=None)


def read_memory_cgroups(root: Root, cgroups: Cgroups) -> list[MemoryCgroup]:
    levels = cgroups.find("memory")
    if levels is None:
        return []
    groups = [_read_memory_cgroup(root, levels, folder) for folder in levels.folders]
    return [group for group in groups if group is not None]


def _read_memory_cgroup(root: Root, levels: Levels, folder: str) -> MemoryCgroup | None:
    limit_name, usage_name, cache_name = (
        ("memory.max", "memory.current", "inactive_file")
        if levels.version == 2
        else ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    )
    limit = root.read_int(f"{folder}/{limit_name}")
    if limit is None or not 0 <= limit < NO_LIMIT_BYTES:
        return None
    usage = root.read_int(f"{folder}/{usage_name}")
    if usage is None:
        return MemoryCgroup(limit, None)
    statistics = parse_fields(root.read(f"{folder}/memory.stat") or "", " ")
    cache = parse_int(statistics.get(cache_name, statistics.get("inactive_file"))) or 0
    return MemoryCgroup(limit, max(0, usage - cache))


def read_portable() -> Memory:
    """macOS and Windows: psutil."""
    import psutil

    memory = psutil.virtual_memory()
    return Memory(memory.total, memory.available, None, memory.available, psutil.swap_memory().total)
