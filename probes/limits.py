"""What this process may use of the machine's CPUs: affinity, cpusets and quotas, of both cgroup versions.

os.process_cpu_count() and sched_getaffinity() see the cpuset but no quota (python/cpython#149452), and a parent
cgroup may be tighter than one's own (lxc/lxcfs#688): every level is read, and the tightest rules.
"""

import os
import sys
from dataclasses import dataclass

from probes.cgroups import Cgroups
from probes.cpusets import parse_cpu_list
from probes.reading import Root, parse_fields, parse_int


@dataclass(frozen=True, slots=True)
class UsableCores:
    """`limit`: `affinity`, `cgroup`, or None where all online CPUs are usable without a quota below them."""

    cores: float
    limit: str | None


def read_usable_cores(root: Root, online: int) -> UsableCores:
    """online: the set of CPUs that run (probes.topology.read_online)."""
    if root.is_host and not sys.platform.startswith("linux"):
        return read_portable(online)
    cgroups = Cgroups(root)
    affinity = read_affinity(root)
    return combine_limits(online, affinity, read_cpuset(root, cgroups), read_quota(root, cgroups))


def read_portable(online: int) -> UsableCores:
    """macOS and Windows: psutil tells the affinity where the system has one; there are no cgroups."""
    import psutil

    process = psutil.Process()
    affinity = sum(1 << cpu for cpu in process.cpu_affinity()) if hasattr(process, "cpu_affinity") else None
    return combine_limits(online or (1 << (psutil.cpu_count() or 1)) - 1, affinity, None, None)


def combine_limits(online: int, affinity: int | None, cpuset: int | None, quota: float | None) -> UsableCores:
    """Sets that leave nothing of what is online are not believed."""
    allowed, limit = online, None
    for cpus, cause in ((cpuset, "cgroup"), (affinity, "affinity")):
        if cpus is not None and allowed & cpus and allowed & cpus != allowed:
            allowed, limit = allowed & cpus, cause
    if quota is not None and quota < allowed.bit_count():
        return UsableCores(quota, "cgroup")
    return UsableCores(float(allowed.bit_count()), limit)


def read_affinity(root: Root) -> int | None:
    """CPUs the scheduler may put this process on: asked of the kernel here, as captured elsewhere."""
    if root.is_host:
        if not hasattr(os, "sched_getaffinity"):
            return None
        return sum(1 << cpu for cpu in os.sched_getaffinity(0))
    status = parse_fields(root.read("/proc/self/status") or "")
    return parse_cpu_list(status.get("Cpus_allowed_list")) or None


def read_cpuset(root: Root, cgroups: Cgroups) -> int | None:
    """CPUs of the cpuset this process is in; None where there is none, or none is set.

    An empty file means "like my parent" in version 2 and "not set up" in version 1, so the next level up is asked.
    """
    return _read_cpuset_list(root, cgroups, "cpus")


def read_memory_nodes(root: Root, cgroups: Cgroups) -> int | None:
    """NUMA nodes this process may take memory from, as a set; None where nothing limits them."""
    status = parse_fields(root.read("/proc/self/status") or "")
    listed = parse_cpu_list(status.get("Mems_allowed_list")) or None
    return listed or _read_cpuset_list(root, cgroups, "mems")


def _read_cpuset_list(root: Root, cgroups: Cgroups, what: str) -> int | None:
    levels = cgroups.find("cpuset")
    if levels is None:
        return None
    names = (
        [f"cpuset.{what}.effective", f"cpuset.{what}"]
        if levels.version == 2
        else [f"cpuset.effective_{what}", f"cpuset.{what}"]
    )
    names = names if levels.prefix else [what]
    for folder in levels.folders:
        for name in names:
            if numbers := parse_cpu_list(root.read(f"{folder}/{name}")):
                return numbers
    return None


def read_quota(root: Root, cgroups: Cgroups) -> float | None:
    """CPUs' worth of time that the tightest cgroup allows; None without a quota."""
    levels = cgroups.find("cpu")
    if levels is None:
        return None
    read = _read_quota_v2 if levels.version == 2 else _read_quota_v1
    quotas = [quota for folder in levels.folders if (quota := read(root, folder)) is not None]
    return min(quotas, default=None)


def _read_quota_v1(root: Root, folder: str) -> float | None:
    quota, period = root.read_int(f"{folder}/cpu.cfs_quota_us"), root.read_int(f"{folder}/cpu.cfs_period_us")
    return quota / period if quota and period and quota > 0 and period > 0 else None


def _read_quota_v2(root: Root, folder: str) -> float | None:
    return parse_cpu_max(root.read(f"{folder}/cpu.max"))


def parse_cpu_max(text: str | None) -> float | None:
    """cpu.max: `150000 100000` is 1.5 CPUs, `max 100000` no limit."""
    words = (text or "").split()
    quota = parse_int(words[0]) if words else None
    period = parse_int(words[1]) if len(words) > 1 else 100_000  # the kernel's default, in microseconds
    return quota / period if quota and period and quota > 0 and period > 0 else None
