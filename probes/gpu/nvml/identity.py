"""What a card is and how it was set up: facts that stay while the driver runs."""

from typing import Any

from probes.gpu.nvml.asking import Card, as_count, as_counts, as_flag, as_text
from probes.gpu.pci import normalize_address

# CUDA cores in one multiprocessor by compute capability (CUDA C++ Programming Guide, "Arithmetic Instructions").
_CORES_PER_MULTIPROCESSOR = {
    "3.0": 192, "3.5": 192, "3.7": 192, "5.0": 128, "5.2": 128, "5.3": 128, "6.0": 64, "6.1": 128, "6.2": 128,
    "7.0": 64, "7.2": 64, "7.5": 64, "8.0": 64, "8.6": 128, "8.7": 128, "8.9": 128, "9.0": 128, "10.0": 128,
    "10.3": 128, "11.0": 128, "12.0": 128, "12.1": 128,
}  # fmt: skip
_ARCHITECTURE = "NVML_DEVICE_ARCH_"
_NO_ARCHITECTURES = ("T23X", "DLA", "DLA2", "NPU3", "UNKNOWN")  # chips, and engines beside a GPU (nvml.h)
_FULL_NAMES = {"ADA": "Ada Lovelace"}  # as the tables of names have it; of the others NVML's word is the name
_VIRTUALIZATION = ("none", "passthrough", "vgpu", "host-vgpu", "host-vsga")  # nvmlGpuVirtualizationMode_t, in order
_COMPUTE_MODES = ("default", "exclusive-thread", "prohibited", "exclusive-process")  # nvmlComputeMode_t, in order
_MEMORY_CLOCK = 2  # NVML_CLOCK_MEM


def read_identity(card: Card, index: int) -> dict[str, Any]:
    address = normalize_address(as_text(getattr(card.ask("nvmlDeviceGetPciInfo"), "busId", None)))
    return {
        "id": card.text("nvmlDeviceGetUUID") or (f"pci-{address}" if address else f"nvidia-{index}"),
        "name": card.text("nvmlDeviceGetName"),
        "pci_address": address,
        "architecture": _read_architecture(card),
    }


def read_setup(card: Card) -> dict[str, Any]:
    return {
        "persistence_mode": as_flag(card.ask("nvmlDeviceGetPersistenceMode")),
        "virtualization": _name(_VIRTUALIZATION, as_count(card.ask("nvmlDeviceGetVirtualizationMode"))),
        "mig_mode": as_flag(as_counts(card.ask("nvmlDeviceGetMigMode"), 2)[0]),
        "compute_mode": _name(_COMPUTE_MODES, as_count(card.ask("nvmlDeviceGetComputeMode"))),
    }


def _name(names: tuple[str, ...], number: int | None) -> str | None:
    return names[number] if number is not None and number < len(names) else None


def read_build(card: Card) -> dict[str, Any]:
    capability = _read_capability(card)
    width = card.positive("nvmlDeviceGetMemoryBusWidth")
    clock = card.positive("nvmlDeviceGetMaxClockInfo", _MEMORY_CLOCK)
    return {
        "compute_capability": capability,
        "multiprocessors": _count_multiprocessors(card, capability),
        "memory_bus_bits": width,
        "memory_bandwidth_bytes_per_second": _bandwidth(width, clock),
        "power_limit_default_watts": _watts(card.positive("nvmlDeviceGetPowerManagementDefaultLimit")),
    }


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else round(milliwatts * 1e-3, 3)


def _bandwidth(bus_bits: int | None, clock_mhz: int | None) -> float | None:
    """Bytes per second: bus width in bits / 8, memory clock in MHz, two transfers a clock (DDR, as NVML counts)."""
    return bus_bits / 8 * clock_mhz * 1e6 * 2 if bus_bits and clock_mhz else None


def _read_capability(card: Card) -> str | None:
    major, minor = as_counts(card.ask("nvmlDeviceGetCudaComputeCapability"), 2)
    return f"{major}.{minor}" if major and minor is not None else None


def _count_multiprocessors(card: Card, capability: str | None) -> int | None:
    """NVML counts CUDA cores of a whole card; exact division or None."""
    cores = card.positive("nvmlDeviceGetNumGpuCores")
    per_unit = _CORES_PER_MULTIPROCESSOR.get(capability or "")
    return cores // per_unit if cores and per_unit and cores % per_unit == 0 else None


def _read_architecture(card: Card) -> str | None:
    """NVML's own answer: the compute capability's major number does not tell families apart."""
    answer = as_count(card.ask("nvmlDeviceGetArchitecture"))
    names = [name for name in dir(card.nvml) if name.startswith(_ARCHITECTURE)]
    found = [name.removeprefix(_ARCHITECTURE) for name in names if getattr(card.nvml, name) == answer]
    found = [name for name in found if name not in _NO_ARCHITECTURES]
    known = answer is not None and found
    return _FULL_NAMES.get(found[0], found[0].title()) if known else None
