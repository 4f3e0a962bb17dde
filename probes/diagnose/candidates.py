"""Which accelerators torch could train on: those a chain is followed for."""

from __future__ import annotations

from probes.gpu.driver import VIRTUAL_MACHINE_DRIVERS
from probes.gpu.pci import NO_GPUS
from probes.hardware import Accelerator

VENDORS = ("NVIDIA", "AMD", "Intel", "Apple")  # torch has a backend of its own for them
_INTEL_GPU_DRIVERS = ("xe", "i915", *VIRTUAL_MACHINE_DRIVERS)


def is_candidate(card: Accelerator) -> bool:
    """A PC processor's own graphics are no training GPUs, but where torch uses them (AMD's larger ones with ROCm);
    Apple's are. A MIG instance shares its card's chain."""
    if card.vendor not in VENDORS or card.parent_id is not None:
        return False
    if card.vendor == "Apple":
        return card.kernel_driver is None  # under Linux torch has no backend for it
    is_used = bool(card.usable and card.torch_device)
    return (card.segment != "integrated" or is_used) and (card.vendor != "Intel" or _is_intel_gpu(card))


def _is_intel_gpu(card: Accelerator) -> bool:
    """Its neural processors, co-processors and FPGAs are none, whatever drives them. A virtual machine may have a card
    on bus 0, where those of a processor are else."""
    return card.why_not not in NO_GPUS and (card.kernel_driver is None or card.kernel_driver in _INTEL_GPU_DRIVERS)
