"""What is particular to Arm and Apple machines."""

from __future__ import annotations

from collections.abc import Iterator

from probes.diagnose.codes import make_finding
from probes.diagnose.facts import Facts
from probes.hardware import Finding

_SMALL_PAGE_BYTES = 4096


def find_python_under_rosetta(facts: Facts) -> Iterator[Finding]:
    """A Python for Intel's processors on Apple silicon: it runs translated, without Metal."""
    if not (facts.cpu.name or "").startswith("Apple M") or facts.system.architecture not in ("x86_64", "i386"):
        return
    yield make_finding(
        "python-under-rosetta",
        "software",
        f"This Python is made for Intel's processors and runs translated (Rosetta) on an {facts.cpu.name}: torch has "
        "neither Metal nor the chip's own instructions.",
        "Install a Python for Apple silicon, for instance: arch -arm64 brew install python; then make "
        "the environment anew.",
    )


def find_mps_fallback(facts: Facts) -> Iterator[Finding]:
    if facts.environment.get("PYTORCH_ENABLE_MPS_FALLBACK") != "1":
        return
    if not any(card.vendor == "Apple" for card in facts.accelerators):
        return
    yield make_finding(
        "mps-fallback-on",
        "mps",
        "PYTORCH_ENABLE_MPS_FALLBACK is 1: operations that Metal lacks run on the CPU without a word, "
        "and each copies its "
        "tensors there and back.",
        "unset PYTORCH_ENABLE_MPS_FALLBACK: torch then names the first such operation",
    )


def find_allocator_for_other_pages(facts: Facts) -> Iterator[Finding]:
    """jemalloc is built for one page size and aborts on a kernel with larger pages (jemalloc/jemalloc#467)."""
    page, preload = facts.system.page_bytes, facts.environment.get("LD_PRELOAD", "")
    if page is None or page <= _SMALL_PAGE_BYTES or "jemalloc" not in preload:
        return
    yield make_finding(
        "allocator-for-other-pages",
        "memory",
        f"This kernel's pages are {page // 1024} KiB and LD_PRELOAD loads jemalloc, which most packages "
        "build for 4 KiB: "
        "programs then end at their start with “Unsupported system page size”.",
        "unset LD_PRELOAD, or take a jemalloc that was built on this machine",
    )
