"""How much memory there is, and how much a new process could take now."""

from dataclasses import dataclass, replace

from probes.cgroups import Cgroups, Levels
from probes.hardware import Memory, Outcome
from probes.limits import read_memory_nodes
from probes.numa import Node, hold_all_memory, read_nodes, read_nodes_total, sum_left_bytes, sum_node_bytes
from probes.reading import Root, Unreadable, parse_fields, parse_int

# cgroup v1 writes "no limit" as the largest multiple of a page below 2**63; no machine has 2**60 bytes.
NO_LIMIT_BYTES = 1 << 60
# Older kernels count a node's reserved pages in and MemTotal's out, so the nodes exceed it by a few percent.
# Nodes that hold clearly less than MemTotal do not tell of all memory (hot-added memory in some virtual machines).
NODES_COVER_FRACTION = 0.97
# Nodes that hold far more than MemTotal are the host's, and /proc/meminfo this container's own (lxcfs writes one with
# the container's limit in it, and below /sys/devices/system serves cpu alone: its sysfs_fuse.c).
NODES_EXCEED_FRACTION = 1.25
# `ulimit -d` and `ulimit -v`, of each process by itself (getrlimit(2)). Nothing enforces `ulimit -m`.
PROCESS_LIMITS = ("Max data size", "Max address space")


# What a cgroup's usage has in it that the kernel drops before it kills: files that were read once and more than once,
# and (told by version 2) names and inodes of files. MemAvailable has the same for the whole machine, but for what is
# below a low watermark, which a cgroup has not.
GIVEN_BACK = ("inactive_file", "active_file", "slab_reclaimable")


@dataclass(frozen=True, slots=True)
class MemoryCgroup:
    """One level's limit, and what it uses beyond what the kernel would drop (cache_bytes)."""

    limit_bytes: int
    used_bytes: int | None
    cache_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """reason: why limit and usable memory are unknown, where a cgroup's limit cannot be understood."""

    memory: Memory
    reason: str | None = None


def read_memory(root: Root) -> MemoryReading:
    """Raises Unreadable when neither /proc/meminfo nor the NUMA nodes say how much there is."""
    if not root.is_linux:
        return MemoryReading(read_portable())
    meminfo = parse_meminfo(root.read("/proc/meminfo") or "")
    cgroups = Cgroups(root)
    nodes = choose_nodes(root, meminfo.get("MemTotal"), cgroups)
    total = choose_total(root, nodes, meminfo.get("MemTotal"))
    if total is None:
        root.require("/proc/meminfo")
        raise Unreadable(Outcome.FAILED, "/proc/meminfo has no MemTotal and no NUMA node tells its size")
    available = choose_available(root, nodes, meminfo, total)
    swap_total, swap_used = measure_swap(meminfo)
    memory = Memory(
        total_bytes=total, available_bytes=available, swap_total_bytes=swap_total, swap_used_bytes=swap_used
    )
    try:
        groups = read_memory_cgroups(root, cgroups)
    except Unreadable as unreadable:
        return MemoryReading(memory, unreadable.reason)
    tightest = min(groups, key=lambda group: group.limit_bytes, default=None)
    process_limit = read_process_limit(root)
    return MemoryReading(
        replace(
            memory,
            limit_bytes=tightest.limit_bytes if tightest else None,
            usable_bytes=compute_usable(available, groups, process_limit),
            reclaimable_bytes=tightest.cache_bytes if tightest else None,
            process_limit_bytes=process_limit,
        )
    )


def choose_nodes(root: Root, mem_total: int | None, cgroups: Cgroups) -> list[Node]:
    """The NUMA nodes whose memory this process may use; none where the nodes do not tell of all memory."""
    everything = read_nodes_total(root)
    if everything is None or (mem_total is not None and everything < NODES_COVER_FRACTION * mem_total):
        return []
    nodes, allowed = read_nodes(root), read_memory_nodes(root, cgroups)
    return [node for node in nodes if allowed is not None and allowed >> node.number & 1] or nodes


def choose_total(root: Root, nodes: list[Node], mem_total: int | None) -> int | None:
    """Bytes on these nodes; /proc/meminfo's MemTotal where there are none, and at most that where the nodes are the
    host's that a container runs on."""
    total = sum_node_bytes(nodes) or mem_total
    if mem_total is None or total is None or not nodes:
        return total
    exceeds = (read_nodes_total(root) or 0) > NODES_EXCEED_FRACTION * mem_total
    return min(mem_total, total) if exceeds else total


def choose_available(root: Root, nodes: list[Node], meminfo: dict[str, int], total: int) -> int | None:
    """Bytes that new processes could take on these nodes. MemAvailable is the whole machine's, a GPU's own memory in
    it: where other nodes hold some, too, these have left what they say themselves at most; None where one does not say.
    """
    available = estimate_available(meminfo)
    if available is None or available > meminfo.get("MemTotal", available):
        return None
    if not nodes or hold_all_memory(root, nodes):
        return min(available, total)
    left = sum_left_bytes(nodes)
    return None if left is None else min(available, total, left)


def parse_meminfo(text: str) -> dict[str, int]:
    """/proc/meminfo's sizes in bytes: `MemTotal: 24684092 kB`; a line without its unit was cut off, or counts pages."""
    sizes: dict[str, int] = {}
    for key, value in parse_fields(text).items():
        words = value.split()
        number = parse_int(words[0]) if words else None
        if number is not None and number >= 0 and words[1:2] == ["kB"]:
            sizes[key] = number * 1024
    return sizes


def estimate_available(meminfo: dict[str, int]) -> int | None:
    """MemAvailable; before kernel 3.14 free memory and page cache stand for it, as in free(1)."""
    if "MemAvailable" in meminfo:
        return meminfo["MemAvailable"]
    if not {"MemFree", "Buffers", "Cached"} <= meminfo.keys():
        return None
    return sum(meminfo.get(key, 0) for key in ("MemFree", "Buffers", "Cached", "SReclaimable"))


def measure_swap(meminfo: dict[str, int]) -> tuple[int | None, int | None]:
    """Swap space in all, and what of it is in use; the latter is unknown where the two do not fit together."""
    total, free = meminfo.get("SwapTotal"), meminfo.get("SwapFree")
    if total == 0:
        return 0, 0
    return total, total - free if total is not None and free is not None and free <= total else None


def compute_usable(available: int | None, groups: list[MemoryCgroup], process_limit: int | None = None) -> int | None:
    """What a new process could take now: the machine's available memory, each cgroup's headroom and what one process
    may take at most, the least."""
    if available is None:
        return None
    used = [(group.limit_bytes, group.used_bytes or 0) for group in groups]
    of_process = [] if process_limit is None else [process_limit]
    return min([available, *of_process, *(max(0, limit - taken) for limit, taken in used)])


def read_process_limit(root: Root) -> int | None:
    """Bytes that one process may take, as this one was told; None without a limit, or where nothing tells."""
    return parse_process_limit(root.read("/proc/self/limits") or "")


def parse_process_limit(text: str) -> int | None:
    """/proc/self/limits: `Max data size  unlimited  unlimited  bytes`, what binds and to what it may be raised."""
    lines = text.splitlines()
    rows = [line.removeprefix(name).split() for name in PROCESS_LIMITS for line in lines if line.startswith(name)]
    limits = [parse_int(words[0]) for words in rows if words]
    return min((limit for limit in limits if limit is not None and limit >= 0), default=None)


def read_memory_cgroups(root: Root, cgroups: Cgroups) -> list[MemoryCgroup]:
    levels = cgroups.find("memory")
    if levels is None:
        return []
    groups = [_read_memory_cgroup(root, levels, folder) for folder in levels.folders]
    if levels.version == 1:
        groups.append(_read_hidden_cgroup(root, levels.folders[0]))
    return [group for group in groups if group is not None]


def _read_hidden_cgroup(root: Root, folder: str) -> MemoryCgroup | None:
    """Version 1 tells the tightest limit of all levels, also of those above what a container sees of the tree."""
    statistics = parse_fields(root.read(f"{folder}/memory.stat") or "", " ")
    limit = parse_int(statistics.get("hierarchical_memory_limit"))
    if limit is None or not 0 < limit < NO_LIMIT_BYTES:
        return None
    usage, cache = root.read_int(f"{folder}/memory.usage_in_bytes"), parse_given_back(statistics)
    return MemoryCgroup(limit, None if usage is None else max(0, usage - (cache or 0)), cache)


def _read_memory_cgroup(root: Root, levels: Levels, folder: str) -> MemoryCgroup | None:
    # Above memory.high processes are slowed down until they give memory back: training cannot go there.
    also_limits = ("memory.high",) if levels.version == 2 else ()
    limit_name, usage_name = (
        ("memory.max", "memory.current") if levels.version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    )
    limits = [_read_limit(root, f"{folder}/{name}") for name in (limit_name, *also_limits)]
    limit = min((limit for limit in limits if limit is not None), default=None)
    if limit is None:
        return None
    usage = _read_size(root, f"{folder}/{usage_name}")
    if usage is None:
        return MemoryCgroup(limit, None)
    text = root.read_if_there(f"{folder}/memory.stat")
    cache = parse_given_back(parse_fields(text or "", " "))
    if text is not None and cache is None:
        raise Unreadable(Outcome.FAILED, f"{folder}/memory.stat does not tell of page cache")
    return MemoryCgroup(limit, max(0, usage - (cache or 0)), None if cache is None else min(cache, usage))


def parse_given_back(statistics: dict[str, str]) -> int | None:
    """memory.stat's: in version 1 those with `total_` are of the levels below, too. None where it does not tell."""
    told = [parse_int(statistics.get(f"total_{name}", statistics.get(name))) for name in GIVEN_BACK]
    return None if told[0] is None else sum(size or 0 for size in told)


def _read_limit(root: Root, path: str) -> int | None:
    """None where there is no limit. Raises Unreadable for what is neither a size nor `max`."""
    text = root.read_if_there(path)
    if text is None or text.strip() == "max":
        return None
    limit = _parse_size(path, text)
    return limit if limit < NO_LIMIT_BYTES else None


def _read_size(root: Root, path: str) -> int | None:
    text = root.read_if_there(path)
    return None if text is None else _parse_size(path, text)


def _parse_size(path: str, text: str) -> int:
    size = parse_int(text)
    if size is None or size < 0:
        raise Unreadable(Outcome.FAILED, f"{path} is no size, so how much memory is usable is unknown")
    return size


def read_portable() -> Memory:
    """macOS and Windows: psutil."""
    import psutil

    memory, swap = psutil.virtual_memory(), psutil.swap_memory()
    return Memory(
        total_bytes=memory.total,
        available_bytes=memory.available,
        usable_bytes=memory.available,
        swap_total_bytes=swap.total,
        swap_used_bytes=swap.used,
    )
