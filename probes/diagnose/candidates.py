"""Which accelerators torch could train on: those a chain is followed for."""

from __future__ import annotations

from probes.hardware import Accelerator

VENDORS = ("NVIDIA", "AMD", "Intel", "Apple")  # torch has a backend of its own for them
VIRTUAL_MACHINE_DRIVERS = ("vfio-pci", "pci-stub", "xen-pciback", "pciback")
_INTEL_GPU_DRIVERS = ("xe", "i915", *VIRTUAL_MACHINE_DRIVERS)


def is_candidate(card: Accelerator) -> bool:
    """A PC processor's own graphics are no training GPUs; Apple's are. A MIG instance shares its card's chain."""
    if card.vendor not in VENDORS or card.parent_id is not None:
        return False
    if card.vendor == "Apple":
        return card.kernel_driver is None  # under Linux torch has no backend for it
    return card.segment != "integrated" and (card.vendor != "Intel" or _is_intel_gpu(card))


def _is_intel_gpu(card: Accelerator) -> bool:
    """Intel's neural processors sit on the chip (bus 0), its old co-processors have drivers of their own."""
    on_chip = (card.pci_address or "").startswith("0000:00:")
    return not on_chip and (card.kernel_driver is None or card.kernel_driver in _INTEL_GPU_DRIVERS)
