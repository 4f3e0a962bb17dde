"""Processor, memory, limits and load of a survey as labelled lines."""

from __future__ import annotations

from typing import Any

from app.cli.units import UNKNOWN, format_bytes, format_number, format_share

Document = dict[str, Any]
Line = tuple[str, str]

CACHE_LEVELS = ("l1d", "l1i", "l2", "l3")
# What Linux calls by another name than people do.
SPOKEN = {"asimd": "asimd (NEON)", "v": "v (RVV)"}


def describe_processor(cpu: Document) -> list[Line]:
    """cpu: of the document of GET /hardware."""
    meaning = cpu["suffix_meaning"]
    return [
        ("cpu", _cpu(cpu)),
        *([(f"suffix {cpu['suffix']}", meaning)] if meaning else []),
        ("cores", _cores(cpu)),
        ("caches", _caches(cpu["cache_bytes"])),
        ("instructions", _instructions(cpu)),
    ]


def describe_room(memory: Document, limits: Document, load: Document) -> list[Line]:
    """Memory, limits and load; a line that nothing is known of is left out."""
    lines = [("memory", _memory(memory)), ("limits", _limits(limits)), ("load", _load(load))]
    return [line for line in lines if line[1] != UNKNOWN or line[0] == "memory"]


def join_words(*parts: Any) -> str:
    return ", ".join(str(part) for part in parts if part not in (None, "", False)) or UNKNOWN


def _cpu(cpu: Document) -> str:
    base, most = cpu["base_frequency_hz"], cpu["max_frequency_hz"]
    return join_words(
        cpu["vendor"],
        cpu["microarchitecture"],
        cpu["generation"] or cpu["tier"],
        base and f"{base / 1e9:.1f} GHz",
        most and f"up to {most / 1e9:.1f} GHz",
        cpu["governor"] and f"governor {cpu['governor']}",
    )


def _cores(cpu: Document) -> str:
    usable, limit = cpu["usable_cores"], cpu["usable_cores_limit"]
    return join_words(
        f"{format_number(cpu['physical_cores'])} physical, {format_number(cpu['logical_cores'])} logical",
        _kinds(cpu),
        f"{format_number(usable)} usable" + (f" (limited by {limit})" if limit else ""),
        cpu["offline_logical_cores"] and f"{cpu['offline_logical_cores']} switched off",
        cpu["sockets"] and f"{cpu['sockets']} socket{'s' if cpu['sockets'] > 1 else ''}",
        cpu["numa_nodes"] and cpu["numa_nodes"] > 1 and f"{cpu['numa_nodes']} NUMA nodes",
        _memory_nodes(cpu["numa_nodes_without_cpus"]),
    )


def _memory_nodes(count: int | None) -> str | None:
    """Some of `numa_nodes` (expanders) and some beside them (a GPU's own memory)."""
    if not count:
        return None
    return f"{count} NUMA node{'s' if count > 1 else ''} without cores (an expander's or a GPU's memory)"


def _kinds(cpu: Document) -> str | None:
    """A hybrid part's kinds of core, those that it has."""
    counts = [(cpu[f"{kind.replace('-', '_')}_cores"], kind) for kind in ("performance", "efficiency", "low-power")]
    named = [f"{count} {kind}" for count, kind in counts if count]
    return " and ".join(named) if len(named) > 1 else None


def _caches(sizes: Document) -> str:
    known = [level for level in CACHE_LEVELS if sizes[level] is not None]
    return join_words(*(f"{level.upper()} {_binary(sizes[level])}" for level in known))


def _binary(size: int) -> str:
    """Caches are sold in powers of two."""
    return f"{size / 2**20:g} MiB" if size >= 2**20 else f"{size / 2**10:g} KiB"


def _instructions(cpu: Document) -> str:
    chosen = cpu["torch_instruction_set"]
    names = join_words(*(SPOKEN.get(name, name) for name in cpu["instruction_sets"]))
    return f"{names}; torch's own kernels: {chosen}" if chosen else names


def _memory(memory: Document) -> str:
    total, usable, limit = memory["total_bytes"], memory["usable_bytes"], memory["limit_bytes"]
    swapped, swap = memory["swap_used_bytes"], memory["swap_total_bytes"]
    return join_words(
        total is not None and f"{format_bytes(total)} in all",
        usable is not None and f"{format_bytes(usable)} usable now",
        limit is not None and f"limited to {format_bytes(limit)} by cgroup",
        swapped and f"{format_bytes(swapped)} of {format_bytes(swap)} swap in use",
    )


def _limits(limits: Document) -> str:
    shared, locked, files = (
        limits["shared_memory_total_bytes"],
        limits["locked_memory_bytes"],
        limits["open_files"],
    )
    return join_words(
        shared is not None and f"/dev/shm {format_bytes(shared)}",
        locked is not None and f"locked memory {format_bytes(locked)}",
        limits["locked_memory_unlimited"] and "locked memory unlimited",
        files is not None and f"{files} open files",
    )


def _load(load: Document) -> str:
    average, busy, stolen = load["load_average"], load["busy_fraction"], load["steal_fraction"]
    return join_words(
        average is not None and f"load average {average:g}",
        busy is not None and f"CPUs {format_share(busy)} busy",
        stolen and f"{format_share(stolen)} taken by the hypervisor for others",
    )
