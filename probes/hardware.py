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
    """How much a finding matters: `error` stands in the way of training, `warning` costs speed or memory."""

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
    """A diagnosis. `code` is stable; `fix` can be pasted or followed as it stands."""

    code: str
    severity: Severity
    subject: str
    message: str
    fix: str | None = None


@dataclass(frozen=True, slots=True)
class System:
    hostname: str | None = None
    os: str | None = None
    kernel: str | None = None
    architecture: str | None = None
    virtualization: str | None = None  # systemd's names: kvm, vmware, microsoft, xen, …; "none" on bare metal
    container: str | None = None  # docker, podman, kubernetes, lxc, …; None: none was seen


@dataclass(frozen=True, slots=True)
class CacheSizes:
    """Totals over the machine's online cores, in bytes; a shared cache counts once."""

    l1d: int | None = None
    l1i: int | None = None
    l2: int | None = None
    l3: int | None = None


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
    sockets: int | None = None
    physical_cores: int | None = None
    logical_cores: int | None = None
    performance_cores: int | None = None
    efficiency_cores: int | None = None
    usable_cores: float | None = None
    usable_cores_limit: str | None = None  # affinity, cgroup or None
    numa_nodes: int | None = None
    cache_bytes: CacheSizes = field(default_factory=CacheSizes)
    instruction_sets: tuple[str, ...] = ()
    max_frequency_hz: int | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    total_bytes: int | None = None
    available_bytes: int | None = None
    limit_bytes: int | None = None  # the tightest cgroup limit above this process; None: no limit
    usable_bytes: int | None = None  # what a new process could take now, under machine and cgroup
    swap_total_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Accelerator:
    id: str
    vendor: str | None = None
    name: str | None = None
    architecture: str | None = None
    generation: str | None = None
    tier: str | None = None
    suffix: str | None = None
    segment: str | None = None
    memory_total_bytes: int | None = None
    memory_free_bytes: int | None = None
    memory_bandwidth_bytes_per_second: float | None = None
    unified_memory: bool | None = None
    compute_capability: str | None = None
    multiprocessors: int | None = None
    pci_address: str | None = None  # domain:bus:device.function, as in 0000:01:00.0
    driver_version: str | None = None
    torch_device: str | None = None
    usable: bool | None = None
    why_not: str | None = None
    utilization_percent: float | None = None
    temperature_celsius: float | None = None
    power_watts: float | None = None
    throttle_reasons: tuple[str, ...] | None = None
    # An idle link runs slower than it can: generation 1 now and 4 at most is healthy.
    pcie_generation: int | None = None
    pcie_generation_maximum: int | None = None
    pcie_lanes: int | None = None
    pcie_lanes_maximum: int | None = None


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


@dataclass(frozen=True, slots=True)
class Software:
    python: str | None = None
    torch: Torch | None = None
    nvidia_driver: str | None = None
    cuda_driver_version: str | None = None


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
    schema_version: str = SCHEMA_VERSION

    def to_json(self) -> dict[str, Any]:
        """The document of `GET /hardware`."""
        return asdict(self)
