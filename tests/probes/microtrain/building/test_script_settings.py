"""A script that says where new tensors lie. torch's device `meta` stands for a card."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from probes.microtrain.building.fake_models import build_meta
from probes.microtrain.models import BuiltModel, build_model
from probes.microtrain.tracing import trace_workload
from probes.workload.description import Workload
from probes.workload.models import python_model
from tests.probes.microtrain.traces.test_tracing_own_code import place

BODY = """
import torch
from torch import nn

class Placed(nn.Module):
    # what it makes itself it takes to be where its inputs are
    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(16, 8), nn.Linear(8, 4)

    def forward(self, tokens):
        return self.head(self.embedding(tokens) + self.embedding(torch.arange(tokens.shape[1]))).mean(dim=1)

def batch(size):
    return torch.randint(16, (size, 5)), torch.randint(4, (size,))

def weighted(output, rows):
    return nn.functional.cross_entropy(output, rows[1], weight=torch.ones(4))

def own():
    {called}
    return Placed(), batch, weighted

{imported}
"""
SETS = "torch.set_default_device(torch.device('meta'))"


@pytest.fixture(params=["imported", "called"])
def own(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Target of a script that sets a default device when it is imported or called."""
    name = f"sets_device_{request.param}"
    parts = {"imported": "pass", "called": "pass"} | {request.param: SETS}
    place(tmp_path, monkeypatch, name, BODY.format(**parts))
    monkeypatch.delitem(__import__("sys").modules, name, raising=False)
    return f"{name}:own"


def devices(built: BuiltModel, device: str) -> set[str]:
    """Where output and loss lie of a batch on a device."""
    module, batch = built.module.to_empty(device=device), tuple(part.to(device) for part in built.make_batch(2, None))
    output = built.forward(module, batch)
    return {output.device.type, built.loss(output, batch).device.type}


def test_a_plan_says_where_tensors_lie_whatever_a_script_sets_for_itself(own: str) -> None:
    built = build_model(python_model(own))
    assert torch.get_default_device().type == "cpu"
    inputs, targets = built.make_batch(2, None)
    assert (inputs.device.type, targets.device.type) == ("cpu", "cpu")


def test_what_its_forward_and_its_loss_make_lies_where_the_batch_is(own: str) -> None:
    built = build_model(python_model(own))
    assert devices(built, "cpu") == {"cpu"}
    assert devices(built, "meta") == {"meta"}


def test_nothing_is_left_of_it_where_a_model_is_built_without_numbers(own: str) -> None:
    build_meta(python_model(own))
    assert torch.get_default_device().type == "cpu"


def test_its_steps_are_traced(own: str) -> None:
    assert trace_workload(Workload(python_model(own), 4)).parameters == 16 * 8 + 8 * 4 + 4


THREADS = """
import torch
{imported}

def own():
    {called}
    return torch.nn.Sequential(torch.nn.Linear(4, 2))
"""


@pytest.mark.parametrize("where", ["imported", "called"])
def test_threads_between_operations_which_torch_takes_once_are_not_set_by_a_function_that_is_called_several_times(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, before = f"sets_threads_{where}", torch.get_num_interop_threads()
    parts = {"imported": "", "called": "pass"} | {where: f"torch.set_num_interop_threads({before + 1})"}
    place(tmp_path, monkeypatch, name, THREADS.format(**parts))
    for _ in range(2):
        build_model(python_model(f"{name}:own"))
    assert torch.get_num_interop_threads() == before
    assert torch.set_num_interop_threads.__module__ != "probes.microtrain.building.script_settings"
