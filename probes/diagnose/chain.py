"""Every card's chain, by its vendor's names, and what the chains find."""

from __future__ import annotations

from collections.abc import Iterator

from probes.diagnose import nvidia_kernel, nvidia_library, other_links
from probes.diagnose.candidates import is_candidate
from probes.diagnose.card_memory import check_memory
from probes.diagnose.facts import Facts
from probes.diagnose.links import Case, Chain, Check, walk
from probes.diagnose.torch_links import check_kernels, check_torch
from probes.diagnose.visibility import check_hidden
from probes.hardware import Finding

_UPPER: tuple[tuple[str, Check], ...] = (
    ("torch is built for it", check_torch),
    ("torch has kernels for this card", check_kernels),
    ("not hidden by the environment", check_hidden),
    ("free memory", check_memory),
)


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
    cards = [card for card in facts.accelerators if is_candidate(card)]
    cards += [facts.silent_card] if facts.silent_card else []
    return tuple(walk(Case(facts, card, facts.driver_of(card.vendor)), LINKS[card.vendor or ""]) for card in cards)


def find_broken_links(facts: Facts) -> Iterator[Finding]:
    """What the chains found: of each the first broken link, and what the links below it had to say."""
    for chain in build_chains(facts):
        yield from chain.findings
