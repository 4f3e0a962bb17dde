"""What memory is seen of a step, and the least it can take."""

import platform
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from probes.microtrain.building.least_memory import LeastMemory, estimate_least_memory, why_too_large
from probes.microtrain.processes.footprint import PeakWatch, parse_status_bytes, read_peak_bytes
from probes.workload.description import Workload
from probes.workload.models import parse_model, python_model
from tests.probes.small_pages import SMALL_PAGES

MIB = 2**20


def test_the_kernels_figures_are_read_in_bytes() -> None:
    text = "Name:\tpython\nVmHWM:\t  2048 kB\nVmRSS:\t  1024 kB\n"
    assert parse_status_bytes(text, "VmHWM") == 2 * MIB
    assert parse_status_bytes(text, "VmRSS") == MIB
    assert parse_status_bytes(text, "VmSwap") is None


OVER = """
import torch
from probes.microtrain.processes.footprint import PeakWatch, read_resident_bytes

watch = PeakWatch(torch.device("cpu"), read_resident_bytes())
with watch.watching():
    torch.ones(64 << 18).sum()
high, now = watch.peak().process_bytes, read_resident_bytes()
with watch.watching():
    pass
print(high - now, watch.peak().process_bytes == high)
"""


def test_a_peak_that_is_over_is_still_seen() -> None:
    """In a process of its own: one that other tests ran in may keep what is freed."""
    if read_peak_bytes() is None:
        pytest.skip("this kernel does not say")
    found = subprocess.run([sys.executable, "-c", OVER], capture_output=True, text=True, check=True).stdout.split()
    assert int(found[0]) > 32 * MIB
    assert found[1] == "True"


KEPT = f"""{SMALL_PAGES}
import torch
from probes.microtrain.processes.footprint import count_page_faults, keep_freed_memory

def faults():
    before = count_page_faults()
    torch.ones(64 << 18)
    return count_page_faults() - before

found = [faults(), faults()]
keep_freed_memory()
print(*found, [faults() for _ in range(24)][-1])  # blocks lie apart at first, and the heap grows
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_memory_that_is_kept_is_not_found_fresh_again() -> None:
    """In a process of its own: it stays so."""
    run = subprocess.run([sys.executable, "-c", KEPT], capture_output=True, text=True, check=True)
    first, second, kept = map(int, run.stdout.split())
    assert min(first, second) > 1000  # of 64 MiB
    assert kept < 100


def test_bytes_that_only_measuring_holds_are_taken_off() -> None:
    plain, relieved = PeakWatch(torch.device("cpu"), None), PeakWatch(torch.device("cpu"), None)
    with plain.watching(), relieved.watching(surplus_host=16 * MIB):
        pass
    assert (plain.peak().process_bytes or 0) - (relieved.peak().process_bytes or 0) > 15 * MIB


def test_the_least_memory_is_known_without_taking_it() -> None:
    model = parse_model(
        {"layers": [{"type": "linear", "out": 10**7}, {"type": "linear", "out": 2}], "input_shape": [4]}
    )
    least = estimate_least_memory(Workload(model, 8), 8)
    assert least.weights_bytes == 4 * (4 * 10**7 + 10**7 + 2 * 10**7 + 2)
    assert least.batch_bytes == 8 * (4 * 4 + 8)
    assert least.total_bytes == least.weights_bytes + least.batch_bytes
    said = why_too_large(least, 2**28)
    assert said.startswith("Weights and one batch alone take 0.3 GiB, and 0.2 GiB may be used here.")


def test_what_a_step_trains_is_part_of_it_where_a_trace_has_told() -> None:
    adam = LeastMemory(2**30, 0, gradients_bytes=2**30, optimizer_bytes=2**31)
    assert adam.total_bytes == 2**32
    assert why_too_large(adam, 2**31).startswith("Weights, gradients, optimizer state and one batch alone take 4.0 GiB")
    assert "plain SGD" in why_too_large(adam, 2**31)
    assert "plain SGD" not in why_too_large(replace(adam, optimizer_bytes=0), 2**31)


def test_of_what_may_get_no_gradient_none_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backbone under no_grad asks for one all the same."""
    program = """
import torch
from torch import nn

class Probe(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone, self.head = nn.Linear(64, 10**9), nn.Linear(10**9, 2)
    def forward(self, x):
        with torch.no_grad():
            features = self.backbone(x)
        return self.head(features)

def probe():
    return Probe(), lambda size: (torch.randn(size, 64), torch.randint(2, (size,)))
"""
    (tmp_path / "linear_probe.py").write_text(program)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    least = estimate_least_memory(Workload(python_model("linear_probe:probe"), 8), 8)
    assert least.weights_bytes == 4 * (64 * 10**9 + 10**9 + 2 * 10**9 + 2)
    assert least.total_bytes == least.weights_bytes + 8 * (64 * 4 + 8)
