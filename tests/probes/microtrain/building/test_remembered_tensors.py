"""Tensors that functions keep for the whole process (functools.lru_cache) are of one model's building alone: what a
trace made, without numbers, meets neither another trace nor a real step."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from probes.microtrain.building.built import BuiltModel
from probes.microtrain.building.makers import noise
from probes.microtrain.building.remembered_tensors import forget_tensors
from probes.microtrain.building.tried_samples import Asked
from probes.microtrain.failures import explain_step_failure
from probes.microtrain.models import build_model
from probes.microtrain.tracing import Untraceable, trace_workload
from probes.workload.description import Workload
from probes.workload.models import parse_model, python_model
from tests.probes.microtrain.traces.test_tracing_own_code import place

# Of such a model transformers computes once a process where each patch lies to each other one.
BEIT = {
    "huggingface": {
        "model_type": "beit",
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "image_size": 32,
        "patch_size": 8,
        "use_relative_position_bias": True,
    },
    "task": "image-classification",
}

PROGRAM = """
import functools

import torch
from torch import nn

READ = []

@functools.lru_cache
def mask_of(size):
    return torch.tril(torch.ones(size, size))

@functools.lru_cache
def words_of(language):
    READ.append(language)
    return {language: ["a", "b"]}

class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 3)

    def forward(self, x):
        return self.layer(x @ mask_of(8))

class Asking(Masked):
    # needs numbers, so that it is run to be traced
    def forward(self, x):
        y = super().forward(x)
        return y * (y > 0).nonzero().shape[0]

class Prepared(Masked):
    def __init__(self):
        super().__init__()
        self.register_buffer("mask", mask_of(8))

    @staticmethod
    @functools.cache
    def numbers():
        return {"first": [torch.ones(8)]}

    def forward(self, x):
        return super().forward(x * self.numbers()["first"][0] @ self.mask)

def batch(size):
    return torch.randn(size, 8), torch.randint(3, (size,))

def masked():
    return Masked(), batch

def asking():
    words_of("latin")
    return Asking(), batch

def prepared():
    return Prepared(), batch

@functools.cache
def kept_whole():
    return Masked(), batch

KEPT = {}

def kept_in_a_dict():
    if not KEPT:
        KEPT["model"] = Asking()
    return KEPT["model"], batch
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module in the current folder."""
    place(tmp_path, monkeypatch, "own_memory", PROGRAM)
    monkeypatch.delitem(sys.modules, "own_memory", raising=False)
    return "own_memory"


def step(built: BuiltModel) -> None:
    batch = built.make_batch(2, None)
    loss = built.loss(built.forward(built.module, batch), batch)
    loss.backward()
    assert torch.isfinite(loss).item()


def test_a_config_is_traced_and_stepped_in_any_order() -> None:
    model = parse_model(BEIT)
    earlier = build_model(model)
    step(earlier)
    traces = [trace_workload(Workload(model, 4, mode=mode), plainly=True) for mode in ("training", "inference")]
    assert all(traced.operations for traced in traces)
    step(earlier)
    step(build_model(model))


@pytest.mark.parametrize("function", ["masked", "asking", "prepared", "kept_whole"])
def test_so_is_ones_own_python(own: str, function: str) -> None:
    model = python_model(f"{own}:{function}")
    for _ in range(2):
        assert trace_workload(Workload(model, 4), plainly=True).operations
        step(build_model(model))


def test_a_model_that_was_asked_what_it_takes_is_stepped_afterwards(own: str) -> None:
    module, _ = importlib.import_module(own).masked()
    assert Asked(module).first_taken([{"x": noise(8)}]) is not None
    assert torch.isfinite(module(torch.randn(2, 8))).all()


def test_what_functions_keep_beside_tensors_is_not_computed_again(own: str) -> None:
    program = importlib.import_module(own)
    for _ in range(2):
        program.asking()
        program.mask_of(8)
        forget_tensors()
    assert program.READ == ["latin"]
    assert program.mask_of.cache_info().currsize == 0


def test_what_is_kept_in_a_dict_is_told(own: str) -> None:
    model = python_model(f"{own}:kept_in_a_dict")
    with pytest.raises(Untraceable, match=r"keeps tensors from one call for the next.*functools\.lru_cache"):
        trace_workload(Workload(model, 4), plainly=True)
    with pytest.raises(AssertionError) as caught:
        step(build_model(model))
    assert "Make them anew" in str(explain_step_failure(caught.value))


def test_a_class_that_says_no_module_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """As some that are written in C."""
    odd, names = ModuleType("odd_library"), dict[str, Any]()
    exec("Odd = type('Odd', (), {})", names)
    assert not hasattr(names["Odd"], "__module__")
    odd.__dict__["Odd"] = names["Odd"]
    monkeypatch.setitem(sys.modules, odd.__name__, odd)
    forget_tensors()
