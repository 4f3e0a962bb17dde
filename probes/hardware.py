"""The vocabulary of facts about a machine.

Frozen dataclasses, one a kind of fact; their fields are the fields of `GET /hardware`. Sizes are bytes, times are
seconds, rates are per second, frequencies are hertz: each name carries its unit. What is not known is None, and the
probe that should have known it says why in its outcome.
"""

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

SCHEMA_VERSION = "1"


class Outcome(StrEnum):
    """How a probe ended."""

    OK = "ok"
    ABSENT = "absent"  # what it reads does not exist on this machine
    UNSUPPORTED = "unsupported"  # it exists, and does not answer this question
    DENIED = "denied"  # permission was refused
    TIMEOUT = "timeout"
    FAILED = "failed"
    PENDING = "pending"  # has not run yet


class Severity(StrEnum):
    """How much a finding matters: `error` says that something is broken; `warning` that it costs speed or memory, or
    leaves a card unused because of how the machine was set up. Whether training is possible `Finding.blocking` says."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class ProbeReport:
    outcome: Outcome
    duration_seconds: float | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """A diagnosis. `code` is stable; `fix` can be pasted or followed as it stands.

    blocking: it stands in the way of training on its subject, so that `crosspoint doctor` exits with 1.
    documentation: its page in the project's docs, as in docs/findings/no-gpu.md.
    """

    code: str
    severity: Severity
    subject: str
    message: str
    fix: str | None = None
    blocking: bool = False
    documentation: str | None = None


@dataclass(frozen=True, slots=True)
class System:
    hostname: str | None = None
    os: str | None = None
    kernel: str | None = None
    architecture: str | None = None
    virtualization: str | None = None  # systemd's names: kvm, vmware, microsoft, xen, …; "none" on bare metal
    container: str | None = None  # docker, podman, kubernetes, lxc, …; None: none was seen
    page_bytes: int | None = None  # of the kernel's memory pages: 4 KiB, or 16 or 64 on some Arm machines


@dataclass(frozen=True, slots=True)
class CacheSizes:
    """Totals over the machine's online cores, in bytes; a shared cache counts once."""

    l1d: int | None = None
    l1i: int | None = None
    l2: int | None = None
    l3: int | None = None


@dataclass(frozen=True, slots=True)
class CoreCluster:
    """The online cores of one kind: a hybrid part's performance cores, or one cluster of a big.LITTLE chip."""

    kind: str | None = None  # performance, efficiency, low-power; None: all cores are alike
    microarchitecture: str | None = None
    physical_cores: int | None = None
    logical_cores: int | None = None
    max_frequency_hz: int | None = None
    # Of these, those that affinity and cpusets leave.
    allowed_physical_cores: int | None = None
    allowed_logical_cores: int | None = None


@dataclass(frozen=True, slots=True)
class Cpu:
    """What is online, and what this process may use of it."""

    name: str | None = None
    vendor: str | None = None
    vendor_id: str | None = None
    architecture: str | None = None
    microarchitecture: str | None = None
    generation: str | None = None
    tier: str | None = None
    suffix: str | None = None
    suffix_meaning: str | None = None
    identified_by: str | None = None  # which signal named the microarchitecture, and which was not believed
    sockets: int | None = None
    physical_cores: int | None = None
    logical_cores: int | None = None
    performance_cores: int | None = None
    efficiency_cores: int | None = None
    low_power_cores: int | None = None
    threads_per_core: int | None = None  # 2: simultaneous multithreading is on
    offline_logical_cores: int | None = None  # present and switched off
    clusters: tuple[CoreCluster, ...] = ()
    usable_cores: float | None = None
    usable_cores_limit: str | None = None  # affinity, cgroup or None
    allowed_logical_cores: int | None = None  # that affinity and cpusets leave; a quota may allow less time on them
    numa_nodes: int | None = None
    numa_nodes_without_cpus: int | None = None  # memory expanders, a GPU's own memory
    cache_bytes: CacheSizes = field(default_factory=CacheSizes)
    instruction_sets: tuple[str, ...] = ()  # those that matter to torch, in Linux's spelling
    torch_instruction_set: str | None = None  # what torch's own kernels use here: DEFAULT, AVX2, AVX512, SVE256, …
    base_frequency_hz: int | None = None
    max_frequency_hz: int | None = None
    governor: str | None = None  # how the kernel chooses frequencies: performance, powersave, schedutil, …
    frequency_driver: str | None = None  # who carries it out: acpi-cpufreq, intel_pstate, amd-pstate-epp, …


@dataclass(frozen=True, slots=True)
class Memory:
    total_bytes: int | None = None
    available_bytes: int | None = None
    limit_bytes: int | None = None  # the tightest cgroup limit above this process; None: no limit
    usable_bytes: int | None = None  # what a new process could take now, under machine, cgroup and ulimit
    swap_total_bytes: int | None = None
    swap_used_bytes: int | None = None
    reclaimable_bytes: int | None = None  # cached files inside the cgroup's usage, given back when needed


@dataclass(frozen=True, slots=True)
class Limits:
    """What this process may take beside cores and memory. A limit that is None is unknown, unless `…_unlimited`."""

    shared_memory_total_bytes: int | None = None  # /dev/shm, through which DataLoader workers hand over batches
    shared_memory_free_bytes: int | None = None
    locked_memory_bytes: int | None = None  # RLIMIT_MEMLOCK, soft: what pinning needs on some drivers
    locked_memory_unlimited: bool | None = None
    open_files: int | None = None  # RLIMIT_NOFILE, soft
    open_files_maximum: int | None = None  # hard


@dataclass(frozen=True, slots=True)
class Load:
    """How busy the machine is now; fractions are of all CPU time since an earlier reading in this process."""

    load_average: float | None = None  # runnable threads, the last minute's mean
    steal_fraction: float | None = None  # taken by the hypervisor for others
    busy_fraction: float | None = None
    interval_seconds: float | None = None  # what the fractions were taken over
    cpu_pressure_percent: float | None = None  # PSI: share of the last 10 s in which something waited for a CPU
    own_busy_fraction: float | None = None  # of busy_fraction, what this process and its children used
    quota_others_cores: float | None = None  # that others kept busy in the cgroup whose quota rules here


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that holds a card's memory; the PID as this process sees it, None where the container hides it."""

    pid: int | None = None
    name: str | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Xid:
    """An error that NVIDIA's driver wrote to the kernel's log (docs.nvidia.com/deploy/xid-errors)."""

    code: int
    meaning: str | None = None
    age_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Accelerator:
    id: str
    vendor: str | None = None
    name: str | None = None
    architecture: str | None = None
    generation: str | None = None
    tier: str | None = None
    suffix: str | None = None
    tier_meaning: str | None = None
    segment: str | None = None
    parent_id: str | None = None  # of a MIG instance: the card it is a part of
    memory_total_bytes: int | None = None
    memory_free_bytes: int | None = None
    memory_bandwidth_bytes_per_second: float | None = None
    unified_memory: bool | None = None
    compute_capability: str | None = None
    gfx_target: str | None = (
        None  # AMD's name of the card's instruction set, as gfx1100: what a ROCm torch is built for
    )
    multiprocessors: int | None = None
    pci_address: str | None = None  # domain:bus:device.function, as in 0000:01:00.0
    driver_version: str | None = None
    kernel_driver: str | None = None  # what the kernel bound the card to: nvidia, nouveau, vfio-pci, amdgpu, xe, …
    torch_device: str | None = None
    usable: bool | None = None
    why_not: str | None = None
    utilization_percent: float | None = None
    temperature_celsius: float | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    power_limit_default_watts: float | None = None  # as the card was made
    throttle_reasons: tuple[str, ...] | None = None  # in words, why its clocks are held down; () when they are not
    throttle_codes: tuple[str, ...] | None = None  # NVML's names of the same, for programs
    graphics_clock_hz: int | None = None
    graphics_clock_maximum_hz: int | None = None
    memory_clock_hz: int | None = None
    memory_clock_maximum_hz: int | None = None
    memory_bus_bits: int | None = None
    persistence_mode: bool | None = None
    virtualization: str | None = None  # none, passthrough, vgpu (a guest's share), host-vgpu, host-vsga
    mig_mode: bool | None = None
    # NVIDIA's word on who may compute: default, exclusive-process (one at a time), exclusive-thread, prohibited.
    compute_mode: str | None = None
    ecc_enabled: bool | None = None
    ecc_corrected_errors: int | None = None  # since the driver was loaded
    ecc_uncorrected_errors: int | None = None
    ecc_corrected_errors_lifetime: int | None = None
    ecc_uncorrected_errors_lifetime: int | None = None
    ecc_needs_reset: bool | None = None  # pages or rows wait for a restart to be retired
    ecc_repair_failed: bool | None = None  # its spare rows could not take over: the memory needs replacing
    xids: tuple[Xid, ...] | None = None  # recent, newest first; None: the kernel's log may not be read
    nvlinks: int | None = None  # active
    nvlinks_maximum: int | None = None
    nvlink_bytes_per_second: float | None = None  # one direction, all active links
    processes: tuple[GpuProcess, ...] | None = None
    # An idle link runs slower than it can: generation 1 now and 4 at most is healthy.
    pcie_generation: int | None = None
    pcie_generation_maximum: int | None = None
    pcie_lanes: int | None = None
    pcie_lanes_maximum: int | None = None
    pcie_lanes_slot: int | None = None  # of the port that the card sits in, at most


@dataclass(frozen=True, slots=True)
class Storage:
    mount: str
    kind: str | None = None  # nvme, ssd, hdd, virtual, network, memory
    total_bytes: int | None = None
    free_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Torch:
    """The installed torch, read without importing it into this process."""

    version: str | None = None
    cuda_version: str | None = None
    cudnn_version: str | None = None
    cuda_available: bool | None = None
    device_count: int | None = None
    current_device: int | None = None
    architectures: tuple[str, ...] = ()
    hip_version: str | None = None  # of a build for AMD's ROCm
    xpu_version: str | None = None  # of a build for Intel's GPUs


@dataclass(frozen=True, slots=True)
class DeviceFile:
    """A file through which a driver is reached, and whether this process may."""

    path: str
    readable: bool | None = None
    writable: bool | None = None
    error: str | None = None  # EACCES: its permissions refuse this user; EPERM: a container's device rules do
    group: str | None = None  # whose members may open it


@dataclass(frozen=True, slots=True)
class Driver:
    """A vendor's driver from the kernel upwards: what was found of each part, whether or not it works."""

    vendor: str  # NVIDIA, AMD, Intel
    # Loaded: nvidia, nvidia_uvm, nouveau, amdgpu, i915, xe, …; None: a capture that does not tell.
    kernel_modules: tuple[str, ...] | None = None
    kernel_module_version: str | None = None
    library: str | None = None  # the name of the library that was found: libnvidia-ml.so.1, libamdhip64.so, …
    library_version: str | None = None
    device_files: tuple[DeviceFile, ...] | None = None  # None: a capture without /dev
    library_error: str | None = None  # the library's own name for it, as NVML_ERROR_LIB_RM_VERSION_MISMATCH
    compute_error: str | None = None  # of CUDA's (HIP's, Level Zero's) initialisation, as CUDA_ERROR_NO_DEVICE
    compute_devices: int | None = None  # how many it then shows to this process
    fabric_manager: str | None = None  # running, stopped, absent; None: no NVSwitch, or it may be hidden


@dataclass(frozen=True, slots=True)
class Software:
    python: str | None = None
    torch: Torch | None = None
    nvidia_driver: str | None = None
    cuda_driver_version: str | None = None
    drivers: tuple[Driver, ...] = ()


@dataclass(frozen=True, slots=True)
class Survey:
    """One reading of the whole machine."""

    surveyed_at: str  # RFC 3339, UTC
    fingerprint: str  # changes when CPU, GPU, driver, torch or limits that matter change, and with nothing else
    system: System
    cpu: Cpu
    memory: Memory
    accelerators: tuple[Accelerator, ...]
    storage: tuple[Storage, ...]
    software: Software
    findings: tuple[Finding, ...]
    probes: dict[str, ProbeReport]
    limits: Limits = field(default_factory=Limits)
    load: Load = field(default_factory=Load)
    schema_version: str = SCHEMA_VERSION

    def to_json(self) -> dict[str, Any]:
        """The document of `GET /hardware`."""
        return asdict(self)
