"""The facts of one accelerator: what the bus, its driver and torch tell of it.

Of the vocabulary of facts (probes.hardware), which is where to import them from.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that holds a card's memory."""

    pid: int | None = None
    """As this process sees it; None: the container hides it."""
    name: str | None = None
    """Of its program; None: it is hidden, or has ended."""
    memory_bytes: int | None = None
    """Of the card's, that it holds."""


@dataclass(frozen=True, slots=True)
class Xid:
    """An error that NVIDIA's driver wrote to the kernel's log (docs.nvidia.com/deploy/xid-errors)."""

    code: int
    """The driver's number of the error."""
    meaning: str | None = None
    """What NVIDIA says it means, in short; None: its list has none."""
    age_seconds: float | None = None
    """Since it was written."""


@dataclass(frozen=True, slots=True)
class Accelerator:
    """A card, or a part of one that computes by itself; None: neither the bus, its driver nor torch tells it."""

    id: str
    """The driver's UUID, or pci- and the address."""
    vendor: str | None = None
    """NVIDIA, AMD, Intel, Apple, …."""
    name: str | None = None
    """The driver's word, else what the PCI ids say; names that several cards share name none."""
    architecture: str | None = None
    """Of the chip, as Ampere or RDNA 3."""
    generation: str | None = None
    """By its name, as GeForce RTX 30."""
    tier: str | None = None
    """Its place within the generation by its name, as 80; None: the name carries none."""
    suffix: str | None = None
    """What stands behind that in its name, as Ti; None: nothing does."""
    tier_meaning: str | None = None
    """What the tier is good for when training, in a sentence."""
    segment: str | None = None
    """consumer, workstation, data-center, laptop, embedded or integrated."""
    parent_id: str | None = None
    """Of a MIG instance: the id of the card that it is a part of."""
    memory_total_bytes: int | None = None
    """The card's own, or the pool of the machine's that is its."""
    memory_free_bytes: int | None = None
    """Of that, free now; None: its driver does not tell."""
    memory_bandwidth_bytes_per_second: float | None = None
    """Bits of its bus / 8 × highest memory clock × 2; None: its driver tells not both."""
    unified_memory: bool | None = None
    """Its memory is the machine's own."""
    compute_capability: str | None = None
    """Of NVIDIA's cards, as 8.6: which kernels run on it."""
    gfx_target: str | None = None
    """AMD's name of the card's instruction set, as gfx1100: what a ROCm torch is built for."""
    multiprocessors: int | None = None
    """Streaming multiprocessors, compute units or cores, as its maker calls what computes side by side."""
    pci_address: str | None = None
    """domain:bus:device.function, as in 0000:01:00.0."""
    driver_version: str | None = None
    """Of the vendor's driver that answers for it."""
    kernel_driver: str | None = None
    """What the kernel bound the card to: nvidia, nouveau, vfio-pci, amdgpu, xe, …; None: nothing."""
    torch_device: str | None = None
    """torch's name for it, as cuda:0; None: torch does not list it, or was not asked."""
    usable: bool | None = None
    """Whether torch can train on it; None: only torch could tell, and was not asked."""
    why_not: str | None = None
    """The first broken link of the chain, in words; None: nothing was found."""
    utilization_percent: float | None = None
    """Of the time just before, that something computed on it."""
    temperature_celsius: float | None = None
    """Of the chip."""
    power_watts: float | None = None
    """What it draws."""
    power_limit_watts: float | None = None
    """The lowest limit in force."""
    power_limit_default_watts: float | None = None
    """As the card was made."""
    throttle_reasons: tuple[str, ...] | None = None
    """In words, what holds its clocks down; []: nothing does; None: its driver does not tell."""
    throttle_codes: tuple[str, ...] | None = None
    """NVML's names of the same, for programs; gpu_idle may be among them."""
    graphics_clock_hz: int | None = None
    """Of what computes, now."""
    graphics_clock_maximum_hz: int | None = None
    """The highest that the driver allows."""
    memory_clock_hz: int | None = None
    """Of its memory, now."""
    memory_clock_maximum_hz: int | None = None
    """The highest that the driver allows."""
    memory_bus_bits: int | None = None
    """Width of the bus to its memory. Bits."""
    persistence_mode: bool | None = None
    """The driver keeps it ready while nobody uses it."""
    virtualization: str | None = None
    """none, passthrough (a guest's whole card), vgpu (a guest's share), host-vgpu or host-vsga."""
    mig_mode: bool | None = None
    """MIG is on: it is parted into instances, or may be."""
    compute_mode: str | None = None
    """Who may compute on it: default (anybody), exclusive-process (one process at a time), exclusive-thread or
    prohibited."""
    ecc_enabled: bool | None = None
    """Its memory corrects errors."""
    ecc_corrected_errors: int | None = None
    """How many, since the driver was loaded."""
    ecc_uncorrected_errors: int | None = None
    """How many, since the driver was loaded."""
    ecc_corrected_errors_lifetime: int | None = None
    """How many, since the card was made."""
    ecc_uncorrected_errors_lifetime: int | None = None
    """How many, since the card was made."""
    ecc_needs_reset: bool | None = None
    """Pages or rows wait for a restart to be retired."""
    ecc_repair_failed: bool | None = None
    """Its spare rows could not take over: the memory needs replacing."""
    xids: tuple[Xid, ...] | None = None
    """Errors in the kernel's log, newest first; None: the log may not be read."""
    nvlinks: int | None = None
    """Links to other cards that are active."""
    nvlinks_maximum: int | None = None
    """Links that it has."""
    nvlink_bytes_per_second: float | None = None
    """One direction, all active links."""
    processes: tuple[GpuProcess, ...] | None = None
    """Those that hold its memory (AMD's: those that compute); None: its driver does not tell."""
    pcie_generation: int | None = None
    """Of the link between slot and card, now: 1 while it idles is healthy."""
    pcie_generation_maximum: int | None = None
    """The highest that slot and card both can."""
    pcie_lanes: int | None = None
    """Lanes of that link, now."""
    pcie_lanes_maximum: int | None = None
    """Lanes of that link at most, as the card tells it."""
    pcie_lanes_slot: int | None = None
    """Lanes of the port that the card sits in, at most."""


def subject_of(card: Accelerator) -> str:
    """What findings call it."""
    return card.torch_device or card.name or card.pci_address or card.id
