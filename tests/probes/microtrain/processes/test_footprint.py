"""What memory is seen of a step, and the least it can take."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from probes.microtrain.building.least_memory import STATE_VALUES, estimate_least_memory, why_too_large
from probes.microtrain.processes.footprint import PeakWatch, parse_status_bytes, read_peak_bytes
from probes.microtrain.step import OPTIMIZER_FACTORIES
from probes.workload.description import OPTIMIZERS, OptimizerName, Workload
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


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizers_state_is_what_it_keeps_after_a_step(name: OptimizerName) -> None:
    parameter = torch.nn.Parameter(torch.zeros(1000))
    optimizer = OPTIMIZER_FACTORIES[name]([parameter])
    parameter.grad = torch.ones(1000)
    optimizer.step()
    kept = sum(value.numel() for value in optimizer.state[parameter].values() if torch.is_tensor(value))
    assert kept // 1000 == STATE_VALUES[name]


def test_the_least_memory_is_known_without_taking_it() -> None:
    model = parse_model(
        {"layers": [{"type": "linear", "out": 10**7}, {"type": "linear", "out": 2}], "input_shape": [4]}
    )
    least = estimate_least_memory(Workload(model, 8), 8)
    assert least.weights_bytes == 4 * (4 * 10**7 + 10**7 + 2 * 10**7 + 2)
    assert least.gradients_bytes == least.weights_bytes
    assert least.optimizer_bytes == 2 * least.weights_bytes
    assert least.batch_bytes == 8 * (4 * 4 + 8)
    assert "1.0 GiB may be used" in why_too_large(least, 2**30)
    assert "plain SGD" in why_too_large(least, 2**30)
    inference = estimate_least_memory(Workload(model, 8, mode="inference"), 8)
    assert inference.total_bytes < least.weights_bytes * 1.1


def test_gradients_that_a_hook_may_take_are_no_part_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an optimizer does that steps within the backward."""
    program = """
import torch
from torch import nn

def taken():
    net = nn.Linear(8, 2)
    net.weight.register_post_accumulate_grad_hook(lambda weight: setattr(weight, "grad", None))
    return net, lambda size: (torch.randn(size, 8), torch.randint(2, (size,)))
"""
    (tmp_path / "taken_gradients.py").write_text(program)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    least = estimate_least_memory(Workload(python_model("taken_gradients:taken"), 8), 8)
    assert least.weights_bytes == 4 * (8 * 2 + 2)
    assert (least.gradients_bytes, least.optimizer_bytes) == (4 * 2, 2 * 4 * 2)  # of the bias


def test_of_a_sparse_table_the_whole_of_no_gradient_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = """
import torch
from torch import nn

class Bags(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.EmbeddingBag(10**9, 64, sparse=True), nn.Linear(64, 2)
    def forward(self, x):
        return self.head(self.table(x))

def bags():
    return Bags(), lambda size: (torch.randint(9, (size, 4)), torch.randint(2, (size,)))
"""
    (tmp_path / "sparse_bags.py").write_text(program)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    least = estimate_least_memory(Workload(python_model("sparse_bags:bags"), 8, optimizer="sgd"), 8)
    assert least.weights_bytes > 4 * 64 * 10**9
    assert least.gradients_bytes == 4 * (2 * 64 + 2)
    assert "plain SGD" not in why_too_large(least, 2**30)
