"""Modules that were quantized keep their weights packed: these are counted, and no step fails for them."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.ao.quantization import quantize_dynamic

from probes.microtrain.traces.operation_costs import flops_of
from probes.microtrain.traces.packed_weights import packed_weights
from probes.microtrain.tracing import trace_workload
from probes.workload.description import Workload
from probes.workload.models import python_model

PROGRAM = """
import torch
from torch import nn
from torch.ao.quantization import quantize_dynamic


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(64, 64)

    def forward(self, x):
        return self.inner(self.inner(x).relu())


def quantized():
    net = nn.Sequential(nn.Linear(64, 64), Twice(), nn.Linear(64, 10))
    return quantize_dynamic(net, {nn.Linear}), lambda size: (torch.randn(size, 64), torch.randint(10, (size,)))
"""
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "own_quantized.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "own_quantized:quantized"


def test_a_quantized_model_is_counted_and_runs_under_autocast(own: str) -> None:
    """The same object is asked for the same twice, in a step and in another precision."""
    traced = trace_workload(Workload(python_model(own), 4, mode="inference"))
    layers = ((64, 64), (64, 64), (64, 10))
    assert traced.all_parameters >= sum(rows * columns + columns for rows, columns in layers)
    assert traced.flops(1) == 2 * (64 * 64 * 3 + 64 * 10)
    assert {op.kind for op in traced.operations if op.flops.at(1)} == {"matmul"}
    assert traced.autocast_refused == ""
    assert traced.autocast_peaks == traced.activation_peaks


def test_recurrent_cells_hold_theirs_too() -> None:
    lstm = nn.LSTM(8, 16)
    numbers = sum(parameter.numel() for parameter in lstm.parameters())
    assert sum(each.numel() for each in packed_weights(quantize_dynamic(nn.Sequential(lstm), {nn.LSTM}))) >= numbers


@pytest.mark.parametrize("groups", [1, 2])
def test_a_quantized_convolution_computes_as_much_as_a_plain_one(groups: int) -> None:
    weight = torch.quantize_per_tensor(torch.randn(6, 4 // groups, 3, 3), 0.1, 0, torch.qint8)
    packed = torch.ops.quantized.conv2d_prepack(weight, torch.zeros(6), [1, 1], [0, 0], [1, 1], groups)
    image = torch.quantize_per_tensor(torch.randn(2, 4, 10, 10), 0.1, 0, torch.quint8)
    args: tuple[Any, ...] = (image, packed, 0.1, 0)
    result = torch.ops.quantized.conv2d(*args)
    assert flops_of(torch.ops.quantized.conv2d.new, args, {}, result) == 2 * result.numel() * 9 * 4 // groups
