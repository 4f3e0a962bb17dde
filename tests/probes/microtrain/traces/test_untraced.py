"""What is said of a model that is too large to be built for its trace, and how much of it is built until then."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from probes.microtrain import tracing
from probes.microtrain.models import build_model
from probes.microtrain.traces.untraced import explain_real_step, explain_step
from probes.microtrain.tracing import Untraceable, trace_workload
from probes.workload.description import InvalidModel, Workload
from probes.workload.models import parse_model, python_model
from tests.probes.microtrain.traces.test_tracing_own_code import place

PROGRAM = """
import copy
import torch
from torch import nn

BUILT, ASKED = [], []

class Asking(nn.Module):
    # its constructor asks for numbers, as stochastic depth does
    def __init__(self):
        super().__init__()
        self.layers, self.rates = nn.ModuleList(), []
        for rate in torch.linspace(0, 0.1, 40):
            self.layers.append(nn.Linear(16, 16))
            self.rates.append(rate.item())
            BUILT.append(1)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x

class Curious(Asking):
    # and so does its step
    def forward(self, x):
        return super().forward(x) * (x > 0).nonzero().shape[0]

class Copied(nn.Module):
    # copied layers are registered whole
    def __init__(self):
        super().__init__()
        self.rate = torch.linspace(0, 0.1, 2)[1].item()
        layers = []
        for _ in range(40):
            layers.append(copy.deepcopy(nn.Linear(16, 16)))
            BUILT.append(1)
        self.layers = nn.ModuleList(layers)

    def forward(self, x):
        return self.layers[0](x)

class Tied(nn.Module):
    # two weights until they are one
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(16, 16), nn.Linear(16, 16)
        self.last.weight, self.last.bias = self.first.weight, self.first.bias

    def forward(self, x):
        return self.last(self.first(x)) * (x > 0).nonzero().shape[0]

def batch(size):
    return torch.randn(size, 16), torch.randint(16, (size,))

def asking():
    return Asking(), batch

def curious():
    return Curious(), batch

def copied():
    return Copied(), batch

def tied():
    return Tied(), batch

def of_fours():
    def make(size):
        assert size % 8 == 0
        return batch(size)
    return Curious(), make

class Failing(Asking):
    def __init__(self, fails):
        super().__init__()
        self.fails = fails
    def forward(self, x):
        self.fails(x)
        return super().forward(x)

def failing():
    return Failing(lambda x: {}["labels"]), batch

def of_many():
    # refuses few
    def make(size):
        ASKED.append(size)
        assert size > 2
        return batch(size)
    return Failing(lambda x: {}["labels"]), make

def particular():
    # takes batches of eight
    return Failing(lambda x: x.view(8, 16)), batch

def elsewhere():
    def fails(x):
        raise NotImplementedError("no backward on CPU")
    return Failing(fails), batch

def without_loss():
    return nn.Linear(16, 16), batch, lambda output, batch: None
"""
LAYER_BYTES = 4 * (16 * 16 + 16)


@pytest.fixture
def own_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    place(tmp_path, monkeypatch, "own_untraced", PROGRAM)
    monkeypatch.delitem(sys.modules, "own_untraced", raising=False)
    return "own_untraced"


def layers_built() -> int:
    return len(sys.modules["own_untraced"].BUILT)


def test_no_more_is_built_of_a_model_than_may_be_for_a_trace(own_code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "MAX_BUILT_PARAMETER_BYTES", 2 * LAYER_BYTES)
    with pytest.raises(Untraceable, match=r"meta tensors.*take more than \S+ GB\. Measure it instead"):
        trace_workload(Workload(python_model(f"{own_code}:asking"), 4))
    assert layers_built() == 2 * tracing.WHILE_BUILT


def test_nor_of_one_that_is_to_be_run_for_its_numbers(own_code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "MAX_REAL_PARAMETER_BYTES", 2 * LAYER_BYTES)
    with pytest.raises(Untraceable, match="too large to be run"):
        trace_workload(Workload(python_model(f"{own_code}:curious"), 4))
    assert layers_built() % 40 == 2 * tracing.WHILE_BUILT  # whole for what is stepped under fake tensors


def test_what_is_within_the_bounds_is_traced(own_code: str) -> None:
    traced = trace_workload(Workload(python_model(f"{own_code}:asking"), 4))
    assert traced.batch_sizes == tracing.BATCH_PAIRS[0]
    assert traced.parameter_bytes == 40 * LAYER_BYTES


def test_layers_that_are_copied_count_as_well(own_code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "MAX_BUILT_PARAMETER_BYTES", 2 * LAYER_BYTES)
    with pytest.raises(Untraceable, match="Measure it instead"):
        trace_workload(Workload(python_model(f"{own_code}:copied"), 4))
    assert layers_built() < 2 * tracing.WHILE_BUILT


def test_weights_that_are_tied_take_their_memory_once(own_code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """While they are built they lie there twice."""
    monkeypatch.setattr(tracing, "MAX_REAL_PARAMETER_BYTES", LAYER_BYTES)
    assert trace_workload(Workload(python_model(f"{own_code}:tied"), 4)).parameter_bytes == LAYER_BYTES


def test_a_heavy_model_takes_multiples_too(own_code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "LIGHT_PARAMETER_BYTES", 0)
    assert trace_workload(Workload(python_model(f"{own_code}:of_fours"), 64)).batch_sizes == (24, 48)


def test_a_loss_that_is_none_is_told_whatever_the_size(own_code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "MAX_REAL_PARAMETER_BYTES", 0)
    with pytest.raises(InvalidModel, match="returned None"):
        trace_workload(Workload(python_model(f"{own_code}:without_loss"), 4))


def contradicting(shape: list[int], *layers: dict[str, Any]) -> Workload:
    """Of layers that are fed with other samples than they were checked for."""
    model = parse_model({"layers": list(layers), "input_shape": [6, 4]})
    return Workload(replace(model, content={**model.content, "input_shape": shape}), 4)


HIDDEN, MEAN, OUT = {"type": "linear", "out": 10}, {"type": "mean", "dim": 2}, {"type": "linear", "out": 3}
FITTING = contradicting([6, 4], HIDDEN, OUT)


def test_what_a_model_refuses_is_not_to_be_measured_instead() -> None:
    """A real step would refuse it as well; what torch raises may come of tensors without numbers."""
    with pytest.raises(ValueError, match="odd") as own:
        raise ValueError("an odd length")
    assert "measured with these it would fail as well" in explain_step(own.value, FITTING)
    with pytest.raises(ValueError) as of_torch:
        torch.nn.functional.cross_entropy(torch.randn(3, 2), torch.zeros(4, dtype=torch.long))
    for error in (of_torch.value, RuntimeError("?")):
        assert "measure it instead" in explain_step(error, FITTING)


@pytest.mark.parametrize(
    ("workload", "kind"),
    [
        (contradicting([6, 5], HIDDEN, OUT), RuntimeError),
        (contradicting([6], MEAN, HIDDEN), IndexError),
        (contradicting([6, 4], {"type": "conv1d", "out": 3, "kernel": 2}), None),
    ],
    ids=["sizes", "axes", "none"],
)
def test_nor_are_sizes_that_contradict_each_other(workload: Workload, kind: type[Exception] | None) -> None:
    """Where a step that nobody watches fails of them at the batch asked for as well: with numbers it does the same."""
    built = build_model(workload.model)
    batch = built.make_batch(workload.batch_size, None)
    failed: Exception = RuntimeError("The size of tensor a (4) must match the size of tensor b (3)")
    if kind is not None:
        with pytest.raises(kind) as caught:
            built.forward(built.module, batch)
        failed = caught.value
    told = "measure it instead" if kind is None else "measured with these it would fail as well"
    assert told in explain_step(failed, workload)


FAILS_ALIKE = "measured with these it would fail as well"


def test_a_real_step_that_fails_unwatched_as_well_is_not_to_be_measured(own_code: str) -> None:
    """Whatever watching made of it, at the batch asked for; what does not is, and what was not tried may be."""
    own = {name: Workload(python_model(f"{own_code}:{name}"), 6) for name in ("failing", "particular", "asking")}
    error = RuntimeError("seen while it was watched")
    assert "fails with KeyError: 'labels'. Check its code" in (told := explain_real_step(error, own["failing"]))
    assert FAILS_ALIKE in told
    assert FAILS_ALIKE in explain_real_step(error, own["particular"])
    for workload in (
        own["asking"],
        replace(own["particular"], batch_size=8),
        replace(own["failing"], batch_size=10**9),
    ):
        told = explain_real_step(error, workload)
        assert "seen while it was watched. Check its sizes and inputs; where they are right, measure it instead" in told


def test_no_batch_is_made_to_see_that_is_larger_than_a_trace_takes(own_code: str) -> None:
    own = Workload(python_model(f"{own_code}:of_many"), 80)
    assert FAILS_ALIKE in explain_real_step(RuntimeError("?"), own)
    assert 80 in sys.modules["own_untraced"].ASKED
    sys.modules["own_untraced"].ASKED.clear()
    assert "measure it instead" in explain_real_step(RuntimeError("?"), replace(own, batch_size=81))
    assert sys.modules["own_untraced"].ASKED == []


def test_what_torch_cannot_do_on_a_cpu_may_run_elsewhere(own_code: str) -> None:
    told = explain_real_step(RuntimeError("?"), Workload(python_model(f"{own_code}:elsewhere"), 6))
    assert "NotImplementedError: no backward on CPU. Measured on this CPU it fails as well; another device may" in told


def test_nor_is_it_advised_of_a_step_that_was_traced(own_code: str) -> None:
    with pytest.raises(Untraceable, match=FAILS_ALIKE):
        trace_workload(Workload(python_model(f"{own_code}:failing"), 6))
