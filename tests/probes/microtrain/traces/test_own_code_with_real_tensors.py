"""The user's own Python that has real tensors of its own: it is traced, and left as it was."""

import sys
from pathlib import Path

import pytest
import torch

from probes.microtrain import tracing
from probes.microtrain.models import build_model
from probes.microtrain.tracing import trace_workload
from probes.trace import Trace
from probes.workload.description import Workload
from probes.workload.models import python_model
from tests.probes.microtrain.traces.test_tracing_own_code import place

DATA_PROGRAM = """
import numpy as np
import torch
from torch import nn

ROWS = torch.randn(64, 4)
LABELS = torch.randint(3, (64,))
NUMBERS = np.random.rand(64, 4).astype("float32")
WEIGHTS = torch.tensor([1.0, 2.0, 3.0])
MODULE = nn.Linear(4, 3)

def example():
    return nn.Linear(4, 3), (torch.randn(10, 4), torch.randint(3, (10,)))

def numpy_backed():
    def make_batch(size):
        chosen = np.random.randint(64, size=size)
        return torch.from_numpy(NUMBERS[chosen]), torch.from_numpy(chosen % 3)
    return nn.Linear(4, 3), make_batch

def global_closure():
    return nn.Linear(4, 3), lambda size: (ROWS[:size], LABELS[:size])

def local_closure():
    rows, labels = torch.randn(64, 4), torch.randint(3, (64,))
    def make_batch(size):
        chosen = torch.randint(64, (size,))
        return rows[chosen], labels[chosen]
    return nn.Linear(4, 3), make_batch

def lasting_module():
    return MODULE, (ROWS, LABELS)

def weighted_loss():
    loss = lambda output, batch: nn.functional.cross_entropy(output, batch[1], weight=WEIGHTS)
    return nn.Linear(4, 3), (ROWS, LABELS), loss

def looks_while_building():
    layer = nn.Linear(4, 3)
    layer.scale = float(layer.weight.abs().max().item())
    return layer, (torch.randn(10, 4), torch.randint(3, (10,)))
"""


@pytest.mark.parametrize(
    "function",
    [
        *("example", "numpy_backed", "global_closure", "local_closure", "lasting_module", "weighted_loss"),
        "looks_while_building",
    ],
)
def test_own_python_with_real_data_is_traced_and_left_as_it_was(
    function: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place(tmp_path, monkeypatch, "own_data", DATA_PROGRAM)
    monkeypatch.delitem(sys.modules, "own_data", raising=False)
    model = python_model(f"own_data:{function}")
    traced = trace_workload(Workload(model, 4))
    assert traced.parameters == 15
    forward = [op for op in traced.operations if op.phase == "forward"]
    assert sum(op.count * op.flops.at(8) for op in forward) == 2 * 8 * 4 * 3
    built = build_model(model)  # real, after the fake one
    batch = built.make_batch(5, None)
    assert torch.isfinite(built.loss(built.forward(built.module, batch), batch)).item()


OUT_OF_THE_WAY_PROGRAM = """
import warnings

import numpy
import torch
from torch import nn

WEIGHTS = torch.tensor([1.0, 2.0, 3.0])


class Masked(nn.Module):
    # keeps a tensor that is neither a parameter nor a buffer
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 3)
        self.mask = torch.tril(torch.ones(8, 8))

    def forward(self, x):
        return self.layer(x @ self.mask)


def batch(size):
    return torch.randn(size, 8), torch.randint(3, (size,))

def masked():
    return Masked(), batch

def loaded():
    # as transformers' from_pretrained does
    if torch.get_default_device().type == "meta":
        raise RuntimeError("weights are not loaded on the meta device")
    return nn.Linear(8, 3), batch

class Normed(nn.Module):
    # a hook makes the weight of each step, which is no leaf; a buffer is real
    def __init__(self):
        super().__init__()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            self.layer = torch.nn.utils.weight_norm(nn.Linear(8, 3))
        self.register_buffer("mean", torch.from_numpy(numpy.zeros(8, dtype="float32")))

    def forward(self, x):
        return self.layer(x - self.mean)

def normed():
    return Normed(), batch

def weighted():
    return nn.Linear(8, 3), batch, lambda output, rows: nn.functional.cross_entropy(output, rows[1], weight=WEIGHTS)

class Tied(nn.Module):
    # a list of its own has the weight that two layers share
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.tied = [self.layer.weight]

    def forward(self, x):
        return nn.functional.linear(self.layer(x), self.tied[0])

def tied():
    return Tied(), batch

def loaded_and_tied():
    loaded()
    return Tied(), batch

class Turned(nn.Module):
    # keeps what was computed from a weight, through which the weight's gradient comes
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 3)
        self.turned = self.layer.weight.t()

    def forward(self, x):
        return nn.functional.linear(self.layer(x), self.turned)

class Turning(Turned):
    def forward(self, x):
        return nn.functional.linear(self.layer(x), self.layer.weight.t())

def turned():
    return Turned(), batch

def turning():
    return Turning(), batch

def fused():
    # as torch's tutorial has it, an optimizer for each parameter steps in the backward
    module = nn.Linear(8, 3)
    optimizers = {parameter: torch.optim.Adam([parameter], foreach=False) for parameter in module.parameters()}

    def step(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in module.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    return module, batch
"""


@pytest.mark.parametrize("function", ["masked", "loaded", "weighted", "normed", "tied", "loaded_and_tied", "fused"])
def test_a_model_too_large_to_be_run_is_traced_though_it_keeps_real_tensors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    place(tmp_path, monkeypatch, "own_ways", OUT_OF_THE_WAY_PROGRAM)
    monkeypatch.setattr(tracing, "MAX_REAL_PARAMETER_BYTES", 50)
    traced = trace_workload(Workload(python_model(f"own_ways:{function}"), 4))
    assert traced.batch_sizes == tracing.BATCH_PAIRS[0]  # not run for real
    assert traced.heap_fresh
    assert traced.autocast_operations


def own_trace(function: str) -> Trace:
    return trace_workload(Workload(python_model(f"own_ways:{function}"), 4))


@pytest.mark.parametrize("function", ["masked", "tied"])
def test_one_too_large_to_be_built_is_traced_as_one_that_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    """Its own tensors are fake as well, and count in memory."""
    place(tmp_path, monkeypatch, "own_ways", OUT_OF_THE_WAY_PROGRAM)
    monkeypatch.setattr(tracing, "MAX_REAL_PARAMETER_BYTES", 50)
    built = own_trace(function)
    monkeypatch.setattr(tracing, "MAX_BUILT_PARAMETER_BYTES", 50)
    within = own_trace(function)
    assert (within.parameter_bytes, within.buffer_bytes) == (built.parameter_bytes, built.buffer_bytes)
    assert within.buffer_bytes == (4 * 8 * 8 if function == "masked" else 0)
    assert within.operations == built.operations
    assert within.activation_peaks == built.activation_peaks


def test_what_was_computed_from_a_weight_and_kept_leads_back_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place(tmp_path, monkeypatch, "own_ways", OUT_OF_THE_WAY_PROGRAM)
    monkeypatch.setattr(tracing, "MAX_REAL_PARAMETER_BYTES", 50)
    kept, anew = own_trace("turned"), own_trace("turning")
    assert (kept.buffer_bytes, kept.gradient_bytes) == (0, anew.gradient_bytes)
    products = [sum(op.count for op in each.operations if op.kind == "matmul") for each in (kept, anew)]
    assert products[0] == products[1] == 5


def test_an_optimizer_that_steps_in_the_backward_is_traced_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place(tmp_path, monkeypatch, "own_ways", OUT_OF_THE_WAY_PROGRAM)
    monkeypatch.setattr(tracing, "MAX_REAL_PARAMETER_BYTES", 50)
    traced = own_trace("fused")
    assert (traced.gradient_bytes, traced.optimizer_bytes) == (0, 0)
    [steps] = [op for op in traced.operations if op.name == "aten.addcdiv_" and op.shapes[0] == (3, 8)]
    assert (steps.phase, steps.count) == ("backward", 1)


BESIDE_PROGRAM = """
from dataclasses import dataclass
import torch
from torch import nn

@dataclass
class Kept:
    network: nn.Module

    def __getitem__(self, place):
        return self.network

def teacher():
    return nn.Sequential(nn.Linear(8, 500), nn.Linear(500, 500), nn.Linear(500, 500), nn.Linear(500, 3))

FROZEN = teacher().requires_grad_(False)

class Student(nn.Module):
    # keeps its teacher where it is no module of its own, so that it is neither trained nor saved
    def __init__(self, teacher, counts=False):
        super().__init__()
        self.layer, self.teacher, self.counts = nn.Linear(8, 3), teacher, counts

    def forward(self, x):
        y = self.layer(x)
        if self.counts:
            y = y * (y > 0).nonzero().shape[0]
        with torch.no_grad():
            told = FROZEN(x) if self.teacher is None else self.teacher[0](x)
        return y - told

def batch(size):
    return torch.randn(size, 8), torch.randn(size, 3)

def in_a_list():
    return Student([teacher()]), batch

def as_a_global():
    return Student(None), batch

def counting():
    return Student(None, True), batch

def loaded():
    if torch.get_default_device().type == "meta":
        raise RuntimeError("weights are not loaded on the meta device")
    return in_a_list()

def loaded_in_a_dataclass():
    loaded()
    return Student(Kept(teacher())), batch

def in_the_loss():
    judge = teacher().requires_grad_(False)
    return nn.Linear(8, 3), batch, lambda output, rows: nn.functional.mse_loss(output, judge(rows[0]))

def unasked():
    return nn.Linear(8, 3), batch
"""


@pytest.mark.parametrize("function", ["in_a_list", "as_a_global", "counting", "in_the_loss", "unasked"])
def test_a_network_that_the_module_does_not_own_lives_from_step_to_step_where_a_step_asks_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    place(tmp_path, monkeypatch, "own_teachers", BESIDE_PROGRAM)
    traced = trace_workload(Workload(python_model(f"own_teachers:{function}"), 4))
    asked = 4 * (9 * 500 + 2 * 501 * 500 + 501 * 3)
    assert traced.buffer_bytes == (0 if function == "unasked" else asked)
    assert traced.parameter_bytes == traced.gradient_bytes == 4 * 9 * 3
    assert [op.count for op in traced.autocast_operations if op.dtype == "bfloat16"]
    for line in (*traced.activation_peaks, *traced.autocast_peaks):
        assert line.constant < 0.6 * asked  # under autocast its weights are cast


@pytest.mark.parametrize("function", ["loaded", "loaded_in_a_dataclass"])
def test_a_teacher_in_a_list_lives_from_step_to_step_where_it_is_too_large_to_be_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    place(tmp_path, monkeypatch, "own_teachers", BESIDE_PROGRAM)
    monkeypatch.setattr(tracing, "MAX_REAL_PARAMETER_BYTES", 50)
    monkeypatch.setattr(tracing, "MAX_BUILT_PARAMETER_BYTES", 50)
    traced = trace_workload(Workload(python_model(f"own_teachers:{function}"), 4))
    assert traced.buffer_bytes == 4 * (9 * 500 + 2 * 501 * 500 + 501 * 3)
    assert traced.parameter_bytes == traced.gradient_bytes == 4 * 9 * 3
