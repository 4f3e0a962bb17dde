"""What fresh pages are timed on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from probes.microtrain.constants.traffic import fresh_memory

HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage")
MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) ")


def flags_of(address: int) -> set[str]:
    """The kernel's, of the mapping that holds this address (proc_pid_smaps(5), VmFlags)."""
    is_here = False
    for line in Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines():
        if place := MAPPING.match(line):
            is_here = int(place[1], 16) <= address < int(place[2], 16)
        elif is_here and line.startswith("VmFlags:"):
            return set(line.split()[1:])
    return set()


@pytest.mark.skipif(not HUGE_PAGES.exists(), reason="this kernel has no huge pages")
def test_fresh_memory_comes_in_single_pages_where_the_system_gives_huge_ones() -> None:
    memory = torch.frombuffer(fresh_memory(), dtype=torch.uint8)
    assert "nh" in flags_of(memory.data_ptr())
