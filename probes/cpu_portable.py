"""The CPU on macOS and Windows, where there is no /proc to read."""

import os
import platform
import subprocess
import sys
from dataclasses import replace
from functools import cache
from typing import Any

from probes.cpu_naming import describe_name, explain
from probes.frequency import parse_clock
from probes.hardware import CacheSizes, CoreCluster, Cpu
from probes.instruction_sets import choose_torch_instruction_set, parse_instruction_sets
from probes.names.cpu_identity import CpuIdentity, parse_number, parse_sysctl, read_fields
from probes.names.microarchitecture import identify
from probes.reading import clean

_SYSCTL_SECONDS = 2.0  # it answers in milliseconds
_MAC_KINDS = ("performance", "efficiency")
# Apple's names of Arm features (sysctl hw.optional.arm) in Linux's spelling; those that are alike are not listed.
_MAC_FEATURES = {"dotprod": "asimddp", "fhm": "asimdfhm", "fp16": "asimdhp"}


@cache
def read_portable_cpu() -> Cpu:
    """Asked once a process: py-cpuinfo sleeps a second (workhorsy/py-cpuinfo#205), and a CPU does not change."""
    if sys.platform == "darwin" and (text := _ask_sysctl()):
        return describe_mac(text)
    return _ask_packages()


def _ask_sysctl() -> str | None:
    try:
        answer = subprocess.run(
            ["/usr/sbin/sysctl", "machdep.cpu", "hw"],
            capture_output=True,
            text=True,
            timeout=_SYSCTL_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return answer.stdout or None


def describe_mac(text: str) -> Cpu:
    """macOS's `sysctl machdep.cpu hw`. Performance level 0 is the fastest kind of core."""
    fields, identity = dict(read_fields(text)), parse_sysctl(text)
    cores = [parse_number(fields.get(f"hw.perflevel{level}.physicalcpu")) for level in range(2)]
    kinds = [count for count in cores if count] if None not in cores else []
    apple = identity.vendor_id is None
    spoken = {_MAC_FEATURES.get(flag, flag) for flag in identity.flags} | ({"asimd"} if apple else set())
    cpu = replace(
        describe_identity(replace(identity, flags=frozenset(spoken))),
        architecture="arm64" if apple else "x86_64",
        sockets=parse_number(fields.get("hw.packages")),
        physical_cores=parse_number(fields.get("hw.physicalcpu")),
        logical_cores=parse_number(fields.get("hw.logicalcpu")),
        cache_bytes=_mac_caches(fields, kinds),
        max_frequency_hz=parse_number(fields.get("hw.cpufrequency_max")),
    )
    if apple:
        cpu = replace(cpu, vendor="Apple")
    if len(kinds) == 2:
        cpu = replace(cpu, performance_cores=kinds[0], efficiency_cores=kinds[1], clusters=_mac_clusters(cpu, kinds))
    return _with_threads(cpu)


def _mac_clusters(cpu: Cpu, kinds: list[int]) -> tuple[CoreCluster, ...]:
    return tuple(
        CoreCluster(kind, cpu.microarchitecture, count, count) for kind, count in zip(_MAC_KINDS, kinds, strict=True)
    )


def _mac_caches(fields: dict[str, str], kinds: list[int]) -> CacheSizes:
    """Apple's chips give sizes a kind of core, and how many cores share an L2; Intel's Macs one size for all."""
    if len(kinds) == 2:
        return CacheSizes(
            *(_sum_levels(fields, kinds, name) for name in ("l1dcachesize", "l1icachesize", "l2cachesize"))
        )
    cores, third = parse_number(fields.get("hw.physicalcpu")), parse_number(fields.get("hw.l3cachesize"))
    per_core = [parse_number(fields.get(f"hw.{name}cachesize")) for name in ("l1d", "l1i", "l2")]
    totals = [size * cores if size and cores else None for size in per_core]
    # Apple's chips without levels share their L2 in a way that is not told.
    return CacheSizes(totals[0], totals[1], totals[2] if third else None, third or None)


def _sum_levels(fields: dict[str, str], kinds: list[int], name: str) -> int | None:
    total = 0
    for level, cores in enumerate(kinds):
        size = parse_number(fields.get(f"hw.perflevel{level}.{name}"))
        sharing = parse_number(fields.get(f"hw.perflevel{level}.cpusperl2")) if name.startswith("l2") else 1
        if not size or not sharing:
            return None
        total += size * -(-cores // sharing)
    return total


def _ask_packages() -> Cpu:
    """Windows: psutil counts, py-cpuinfo names."""
    import psutil
    from cpuinfo import get_cpu_info

    described: dict[str, Any] = get_cpu_info()
    identity = CpuIdentity(
        name=clean(described.get("brand_raw")),
        vendor_id=clean(described.get("vendor_id_raw")),
        family=described.get("family"),
        model=described.get("model"),
        stepping=described.get("stepping"),
        flags=frozenset(described.get("flags", ())),
    )
    cpu = replace(
        describe_identity(identity),
        architecture=platform.machine() or None,
        physical_cores=psutil.cpu_count(logical=False),
        logical_cores=psutil.cpu_count(logical=True) or 1,
        base_frequency_hz=(described.get("hz_advertised") or [None])[0] or None,
    )
    return _with_threads(cpu)


def describe_identity(identity: CpuIdentity) -> Cpu:
    """What the processor's own words and numbers settle."""
    name, found = clean(identity.name), identify(identity)
    return Cpu(
        **describe_name(clean(identity.vendor_id), name),
        microarchitecture=found.name,
        identified_by=explain(identity, found),
        instruction_sets=parse_instruction_sets(" ".join(sorted(identity.flags))),
        base_frequency_hz=parse_clock(name),
    )


def _with_threads(cpu: Cpu) -> Cpu:
    """macOS builds torch for Arm without the kernels that Linux has; what it takes there is not known."""
    threads = cpu.logical_cores // cpu.physical_cores if cpu.logical_cores and cpu.physical_cores else None
    chosen = choose_torch_instruction_set(cpu.architecture, cpu.instruction_sets, None, os.environ)
    return replace(cpu, threads_per_core=threads, torch_instruction_set=chosen)
