"""Every card's chain, by its vendor's names, and what the chains find."""

from __future__ import annotations

from collections.abc import Iterator

from probes.diagnose import nvidia_kernel, nvidia_library, other_links
from probes.diagnose.card_memory import check_memory
from probes.diagnose.facts import Facts
from probes.diagnose.links import Case, Chain, Check, walk
from probes.diagnose.nvidia_kernel import VIRTUAL_MACHINE_DRIVERS
from probes.diagnose.torch_links import check_kernels, check_torch
from probes.diagnose.visibility import check_hidden
from probes.hardware import Accelerator, Finding

_UPPER: tuple[tuple[str, Check], ...] = (
    ("torch is built for it", check_torch),
    ("torch has kernels for this card", check_kernels),
    ("not hidden by the environment", check_hidden),
    ("free memory", check_memory),
)


_INTEL_GPU_DRIVERS = ("xe", "i915", *VIRTUAL_MACHINE_DRIVERS)


def _lower_links(library: str, runtime: str) -> tuple[tuple[str, Check], ...]:
    return (
        ("device on the bus", other_links.check_bus),
        ("kernel module", other_links.check_module),
        ("device files and permissions", other_links.check_device_files),
        (library, other_links.check_library),
        (runtime, other_links.check_runtime),
    )


LINKS: dict[str, tuple[tuple[str, Check], ...]] = {
    "NVIDIA": (
        ("device on the bus", nvidia_kernel.check_bus),
        ("kernel module", nvidia_kernel.check_module),
        ("device files and permissions", nvidia_kernel.check_device_files),
        ("driver library", nvidia_library.check_library),
        ("CUDA initialises", nvidia_library.check_cuda),
        *_UPPER,
    ),
    "AMD": (*_lower_links("driver library", "HIP initialises"), *_UPPER),
    "Intel": (*_lower_links("driver library", "Level Zero initialises"), *_UPPER),
    "Apple": (*_lower_links("driver library", "Metal initialises"), *_UPPER),
}


def build_chains(facts: Facts) -> tuple[Chain, ...]:
    """One chain a card that torch could train on."""
    cards = [card for card in facts.accelerators if card.vendor in LINKS and _is_worth_it(card)]
    cards += [facts.silent_card] if facts.silent_card else []
    return tuple(walk(Case(facts, card, facts.driver_of(card.vendor)), LINKS[card.vendor or ""]) for card in cards)


def _is_worth_it(card: Accelerator) -> bool:
    """A PC processor's own graphics are no training GPUs; Apple's are. A MIG instance shares its card's chain."""
    if card.parent_id is not None or (card.segment == "integrated" and card.vendor != "Apple"):
        return False
    if card.vendor == "Apple":
        return card.kernel_driver is None  # under Linux torch has no backend for it
    return card.vendor != "Intel" or _is_intel_gpu(card)


def _is_intel_gpu(card: Accelerator) -> bool:
    """Intel's neural processors sit on the chip (bus 0), its old co-processors have drivers of their own."""
    on_chip = (card.pci_address or "").startswith("0000:00:")
    return not on_chip and (card.kernel_driver is None or card.kernel_driver in _INTEL_GPU_DRIVERS)


def find_broken_links(facts: Facts) -> Iterator[Finding]:
    """What the chains found: of each the first broken link, and what the links below it had to say."""
    for chain in build_chains(facts):
        yield from chain.findings
