"""What this process may use of the machine's CPUs: affinity, cpusets and quotas, of both cgroup versions.

os.process_cpu_count() and sched_getaffinity() see the cpuset but no quota (python/cpython#149452), and a parent
cgroup may be tighter than one's own (lxc/lxcfs#688): every level is read, and the tightest rules.
"""

import os
from dataclasses import dataclass, field

from probes.cgroups import Cgroups, Levels
from probes.cpusets import parse_cpu_list, parse_cpu_mask
from probes.hardware import Outcome
from probes.reading import Root, Unreadable, parse_fields, parse_int


@dataclass(frozen=True, slots=True)
class UsableCores:
    """`limit`: `affinity`, `cgroup`, or None where all online CPUs are usable without a quota below them."""

    cores: float
    limit: str | None
    allowed: int | None = field(default=None, compare=False)  # CPUs that the sets leave, before any quota
    some: int | None = field(default=None, compare=False)  # which these are (a set); None: all that are online


@dataclass(frozen=True, slots=True)
class QuotaUse:
    """cores: that the quota allows. seconds: of CPU time that all in its cgroup have used since it was made.
    stopped_seconds: for how long the quota stopped them, summed over CPUs; None where the kernel does not say."""

    cores: float
    seconds: float
    stopped_seconds: float | None = None


def read_usable_cores(root: Root, online: int) -> UsableCores:
    """online: the set of CPUs that run (probes.topology.read_online).

    Raises Unreadable when a limit is there and cannot be understood: all cores would be a wrong answer.
    """
    if not root.is_linux:
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
    some = None if allowed == online else allowed
    if quota is not None and quota < allowed.bit_count():
        return UsableCores(quota, "cgroup", allowed.bit_count(), some)
    return UsableCores(float(allowed.bit_count()), limit, allowed.bit_count(), some)


def read_affinity(root: Root) -> int | None:
    """CPUs the scheduler may put this process on: asked of the kernel here, as captured elsewhere."""
    if root.is_host:
        if not hasattr(os, "sched_getaffinity"):
            return None
        return sum(1 << cpu for cpu in os.sched_getaffinity(0))
    text = root.read_if_there("/proc/self/status")
    if text is None:
        return None
    status = parse_fields(text)
    allowed = parse_cpu_list(status.get("Cpus_allowed_list")) or parse_cpu_mask(status.get("Cpus_allowed"))
    if not allowed:
        raise Unreadable(Outcome.FAILED, "/proc/self/status does not tell on which CPUs this process may run")
    return allowed


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
            text = root.read_if_there(f"{folder}/{name}")
            if text is not None and (numbers := parse_cpu_list(text)) is None:
                raise Unreadable(Outcome.FAILED, f"{folder}/{name} is no list of numbers, so what it limits is unknown")
            if text is not None and numbers:
                return numbers
    return None


def read_quota(root: Root, cgroups: Cgroups) -> float | None:
    """CPUs' worth of time that the tightest cgroup allows; None without a quota."""
    return min((quota for quota, _ in _quotas(root, cgroups.find("cpu"))), default=None)


def read_quota_use(root: Root) -> QuotaUse | None:
    """Of the tightest cgroup; None without a quota, or where nothing tells."""
    try:
        levels = Cgroups(root).find("cpu")
        cores, folder = min(_quotas(root, levels), default=(None, ""))
    except Unreadable:
        return None  # which the probe of limits reports
    if levels is None or cores is None:
        return None
    told = parse_fields(root.read(f"{folder}/cpu.stat") or "", " ")
    if levels.version == 2:
        used, stopped, unit = parse_int(told.get("usage_usec")), parse_int(told.get("throttled_usec")), 1e-6
    else:  # where the two controllers share a tree, as they do unless somebody parted them
        used, stopped = parse_int(root.read(f"{folder}/cpuacct.usage")), parse_int(told.get("throttled_time"))
        unit = 1e-9
    if used is None:
        return None
    return QuotaUse(cores, used * unit, None if stopped is None else stopped * unit)


def _quotas(root: Root, levels: Levels | None) -> list[tuple[float, str]]:
    """CPUs' worth of time and the cgroup's folder, of each level that has a quota."""
    if levels is None:
        return []
    read = _read_quota_v2 if levels.version == 2 else _read_quota_v1
    return [(quota, folder) for folder in levels.folders if (quota := read(root, folder)) is not None]


def _read_quota_v1(root: Root, folder: str) -> float | None:
    quota = root.read_if_there(f"{folder}/cpu.cfs_quota_us")
    if quota is None or quota.strip() == "-1":
        return None
    period = root.require(f"{folder}/cpu.cfs_period_us")
    return _parse_limit(f"{folder}/cpu.cfs_quota_us", f"{parse_int(quota)} {parse_int(period)}")


def _read_quota_v2(root: Root, folder: str) -> float | None:
    text = root.read_if_there(f"{folder}/cpu.max")
    return None if text is None else _parse_limit(f"{folder}/cpu.max", text)


def _parse_limit(path: str, text: str) -> float | None:
    try:
        return parse_cpu_max(text)
    except ValueError as error:
        raise Unreadable(Outcome.FAILED, f"{path} is no quota, so how many cores are usable is unknown") from error


def parse_cpu_max(text: str) -> float | None:
    """cpu.max: `150000 100000` is 1.5 CPUs, `max 100000` no limit. Raises ValueError for what is neither."""
    words = text.split()
    if words[:1] == ["max"]:
        return None
    quota = parse_int(words[0]) if words else None
    period = parse_int(words[1]) if len(words) > 1 else 100_000  # the kernel's default, in microseconds
    if quota is None or period is None or quota <= 0 or period <= 0:
        raise ValueError("no quota and period")
    return quota / period
