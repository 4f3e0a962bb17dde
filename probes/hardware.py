"""The vocabulary of facts about a machine.

Frozen dataclasses, one a kind of fact; their fields are the fields of `GET /hardware`. Sizes are bytes, times are
seconds, rates are per second, frequencies are hertz: each name carries its unit. What is not known is None, and the
probe that should have known it says why in its outcome.
"""

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from probes.accelerator import Accelerator, GpuProcess, Xid
from probes.software_facts import DeviceFile, Driver, Software, Torch

__all__ = [
    "Accelerator",
    "CacheSizes",
    "CoreCluster",
    "Cpu",
    "DeviceFile",
    "Driver",
    "Finding",
    "GpuProcess",
    "Limits",
    "Load",
    "Memory",
    "Outcome",
    "ProbeReport",
    "Severity",
    "Software",
    "Storage",
    "Survey",
    "System",
    "Torch",
    "Xid",
]

SCHEMA_VERSION = "1"


class Outcome(StrEnum):
    """How a probe ended. ok; absent: what it reads does not exist on this machine; unsupported: it exists, and does not
    answer this question; denied: permission was refused; timeout: no answer came in time; failed: a fault, or nothing
    that makes sense; pending: it has not run yet."""

    OK = "ok"
    ABSENT = "absent"
    UNSUPPORTED = "unsupported"
    DENIED = "denied"
    TIMEOUT = "timeout"
    FAILED = "failed"
    PENDING = "pending"


class Severity(StrEnum):
    """How much a finding matters: `error` says that something is broken; `warning` that it costs speed or memory, or
    leaves a card unused because of how the machine was set up; `info` that it is worth knowing. Whether training is
    possible `blocking` says."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class ProbeReport:
    outcome: Outcome
    """How it ended."""
    duration_seconds: float | None = None
    """What it took, or the time it was waited for; None: it did not begin."""
    reason: str | None = None
    """Why something is not known, in words; None: nothing is missing."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A diagnosis."""

    code: str
    """What was found, stable: a program may rely on it (docs/findings lists all)."""
    severity: Severity
    """How much it matters."""
    subject: str
    """What it is about: a card's name in torch or its id, cpu, memory, torch and their like."""
    message: str
    """What was found, in a sentence."""
    fix: str | None = None
    """A command to paste, or an exact step; None: there is none."""
    blocking: bool = False
    """It stands in the way of training on its subject, so that `crosspoint doctor` exits with 1."""
    documentation: str | None = None
    """Its page in the project's docs, as docs/findings/no-gpu.md; None: it has none."""


@dataclass(frozen=True, slots=True)
class System:
    """What runs here; None: not known."""

    hostname: str | None = None
    """The name that the kernel has for this machine or container."""
    os: str | None = None
    """The distribution's own name for itself; elsewhere the system's, as Darwin."""
    kernel: str | None = None
    """The kernel's release."""
    architecture: str | None = None
    """The kernel's name for the processor's, as x86_64 or aarch64."""
    virtualization: str | None = None
    """systemd's name: kvm, vmware, microsoft, xen, …; none on bare metal; None: nothing settles it."""
    container: str | None = None
    """docker, podman, kubernetes, lxc, …; None: none was seen."""
    page_bytes: int | None = None
    """Of the kernel's memory pages: 4 KiB, or 16 or 64 on some Arm machines."""


@dataclass(frozen=True, slots=True)
class CacheSizes:
    """Totals over the machine's online cores, in bytes; a shared cache counts once."""

    l1d: int | None = None
    """First level, data. Bytes; None: not known."""
    l1i: int | None = None
    """First level, instructions. Bytes; None: not known."""
    l2: int | None = None
    """Second level. Bytes; None: there is none, or it is not known."""
    l3: int | None = None
    """Third level. Bytes; None: there is none, or it is not known."""


@dataclass(frozen=True, slots=True)
class CoreCluster:
    """The online cores of one kind: a hybrid part's performance cores, or one cluster of a big.LITTLE chip."""

    kind: str | None = None
    """performance, efficiency or low-power; None: all cores are alike."""
    microarchitecture: str | None = None
    """Their design, as Golden Cove or Cortex-A76; None: not known."""
    physical_cores: int | None = None
    """Of this kind, online."""
    logical_cores: int | None = None
    """Hardware threads of these."""
    max_frequency_hz: int | None = None
    """The highest clock that the kernel tells of them."""
    allowed_physical_cores: int | None = None
    """Of these, those that affinity and cpusets leave."""
    allowed_logical_cores: int | None = None
    """Of their hardware threads, those that affinity and cpusets leave."""


@dataclass(frozen=True, slots=True)
class Cpu:
    """What is online, and what this process may use of it; None: not known."""

    name: str | None = None
    """The processor's own name, as it tells it."""
    vendor: str | None = None
    """Who made it, as Intel or AMD."""
    vendor_id: str | None = None
    """What the processor calls its vendor, as GenuineIntel."""
    architecture: str | None = None
    """Its instruction set, as x86_64 or aarch64."""
    microarchitecture: str | None = None
    """Its design, as Alder Lake or Zen 4; None: no signal names one for sure."""
    generation: str | None = None
    """What its name says of its generation, as 12th Gen Core; None: the name does not."""
    tier: str | None = None
    """Its place within the generation by its name, as Core i9; None: the name has none."""
    suffix: str | None = None
    """The letters behind the number in its name, as KF; None: there are none."""
    suffix_meaning: str | None = None
    """What the suffix means, in a sentence."""
    identified_by: str | None = None
    """Which signal named the microarchitecture, and which was not believed."""
    sockets: int | None = None
    """Processors that are online."""
    physical_cores: int | None = None
    """Online, of all sockets; None: the kernel does not tell which threads share one."""
    logical_cores: int | None = None
    """Online hardware threads."""
    performance_cores: int | None = None
    """Of the physical ones, where there are kinds; None: all are alike, or it is not known."""
    efficiency_cores: int | None = None
    """Of the physical ones, where there are kinds; None: all are alike, or it is not known."""
    low_power_cores: int | None = None
    """Of the physical ones, where there are kinds; None: all are alike, or it is not known."""
    threads_per_core: int | None = None
    """Of the core that has most; 2: simultaneous multithreading is on."""
    offline_logical_cores: int | None = None
    """Present and switched off."""
    clusters: tuple[CoreCluster, ...] = ()
    """The online cores of each kind."""
    usable_cores: float | None = None
    """What this process may use: the smaller of affinity and cgroup quota, which may be a fraction."""
    usable_cores_limit: str | None = None
    """What sets that: affinity or cgroup; None: nothing, all that are online may be used."""
    allowed_logical_cores: int | None = None
    """CPUs that affinity and cpusets leave; a quota may allow less time on them."""
    numa_nodes: int | None = None
    """Those with memory, as hwloc counts them, without a GPU's own."""
    numa_nodes_without_cpus: int | None = None
    """Of memory alone: expanders', which are among `numa_nodes`, and a GPU's, which are not."""
    cache_bytes: CacheSizes = field(default_factory=CacheSizes)
    """Totals over the online cores."""
    instruction_sets: tuple[str, ...] = ()
    """Those that torch or a library below it chooses its code by, as Linux spells them (asimd is NEON)."""
    torch_instruction_set: str | None = None
    """What torch's own kernels use here: DEFAULT, AVX2, AVX512, SVE256, …"""
    base_frequency_hz: int | None = None
    """The clock that it is sold with."""
    max_frequency_hz: int | None = None
    """The highest clock of any core that is online."""
    governor: str | None = None
    """How the kernel chooses clocks: performance, powersave, schedutil, …; None: it does not tell."""
    frequency_driver: str | None = None
    """Who carries that out: acpi-cpufreq, intel_pstate, amd-pstate-epp, …; None: the kernel does not tell."""

    @property
    def allowed_physical_cores(self) -> int | None:
        """That affinity and cpusets leave, whatever the quota; all where nothing tells which these are."""
        counts = [cluster.allowed_physical_cores for cluster in self.clusters]
        known = [count for count in counts if count is not None]
        return sum(known) if known and len(known) == len(counts) else self.physical_cores


@dataclass(frozen=True, slots=True)
class Memory:
    """The machine's; None: not known."""

    total_bytes: int | None = None
    """Of the machine, on the NUMA nodes that this process may use, without a GPU's own."""
    available_bytes: int | None = None
    """Of that, what the kernel could give to new processes without swapping."""
    limit_bytes: int | None = None
    """The tightest cgroup limit above this process; None: no limit."""
    usable_bytes: int | None = None
    """What a new process could take now, under machine, cgroups and ulimit; None: a limit is not understood."""
    swap_total_bytes: int | None = None
    """Swap space of the machine."""
    swap_used_bytes: int | None = None
    """Of that, in use."""
    reclaimable_bytes: int | None = None
    """Cached files inside the tightest cgroup's usage, which are given back when needed."""
    process_limit_bytes: int | None = None
    """What one process may take by `ulimit -d` or `-v`; None: no limit."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What this process may take beside cores and memory. A limit that is None is unknown, unless `…_unlimited`."""

    shared_memory_total_bytes: int | None = None
    """/dev/shm, through which DataLoader workers hand over batches."""
    shared_memory_free_bytes: int | None = None
    """What is left of it."""
    locked_memory_bytes: int | None = None
    """RLIMIT_MEMLOCK, soft: what pinning needs on some drivers."""
    locked_memory_unlimited: bool | None = None
    """There is no such limit."""
    open_files: int | None = None
    """Files that a process may have open: RLIMIT_NOFILE, soft."""
    open_files_maximum: int | None = None
    """As far as a process may raise that by itself: the same limit, hard."""


@dataclass(frozen=True, slots=True)
class Load:
    """How busy the machine is now; fractions are of all CPU time since an earlier reading in this process."""

    load_average: float | None = None
    """Threads that run or wait for a core: the last minute's mean."""
    steal_fraction: float | None = None
    """Of all CPU time, 0 to 1, what the hypervisor took for others; None: there is no earlier reading yet."""
    busy_fraction: float | None = None
    """Of all CPU time, 0 to 1, in which cores computed; None: there is no earlier reading yet."""
    interval_seconds: float | None = None
    """What the fractions were taken over."""
    cpu_pressure_percent: float | None = None
    """Share of the last 10 s in which something waited for a CPU (PSI); None: the kernel does not tell."""
    own_busy_fraction: float | None = None
    """Of all CPU time, 0 to 1, what crosspoint itself and its children used of `busy_fraction`."""
    quota_others_cores: float | None = None
    """That others kept busy in the cgroup whose quota is the tightest; None: there is no quota."""
    allowed_others_cores: float | None = None
    """That others kept busy of the CPUs that affinity and cpusets leave; None: all are left, or it is not known."""


@dataclass(frozen=True, slots=True)
class Storage:
    """A file system; None: not known."""

    mount: str
    """Where it is mounted."""
    kind: str | None = None
    """nvme, ssd, hdd, virtual, network (also a disk over iSCSI, Fibre Channel or NVMe over fabrics) or memory."""
    total_bytes: int | None = None
    """Its size."""
    free_bytes: int | None = None
    """What this user may still write."""


@dataclass(frozen=True, slots=True)
class Survey:
    """One reading of the whole machine."""

    surveyed_at: str
    """When it was read."""
    fingerprint: str
    """Changes when CPU, GPU, driver, torch or limits that matter change, and with nothing else."""
    system: System
    """The machine's name, and what it runs."""
    cpu: Cpu
    """The processor."""
    memory: Memory
    """The machine's own."""
    accelerators: tuple[Accelerator, ...]
    """A row a card; [] where there is none."""
    storage: tuple[Storage, ...]
    """A row a mount."""
    software: Software
    """Python, torch and the drivers."""
    findings: tuple[Finding, ...]
    """What stands in the way, costs speed or memory, or is worth knowing."""
    probes: dict[str, ProbeReport]
    """How each probe ended, by its name."""
    limits: Limits = field(default_factory=Limits)
    """What this process may take beside cores and memory."""
    load: Load = field(default_factory=Load)
    """How busy the machine is."""
    schema_version: str = SCHEMA_VERSION
    """Of this document."""

    def to_json(self) -> dict[str, Any]:
        """The document of `GET /hardware`."""
        return asdict(self)
