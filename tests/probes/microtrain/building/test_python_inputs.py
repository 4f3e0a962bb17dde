"""What of a batch one's own module is given, in training and in inference, and whether its owner had it compiled."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.microtrain.building.samples_asked import InvalidBatch
from probes.microtrain.models import build_model
from probes.microtrain.tracing import trace_workload
from probes.workload.description import MODES, Workload
from probes.workload.models import python_model
from tests.probes.microtrain.traces.test_tracing_own_code import place

PROGRAM = """
import torch
from torch import nn

def one_output():
    return nn.Sequential(nn.Linear(13, 8), nn.ReLU(), nn.Linear(8, 1))

def plain_example():
    return one_output(), (torch.rand(10, 13), torch.rand(10, 1))

def compiled_example():
    return torch.compile(one_output(), backend="eager"), (torch.rand(10, 13), torch.rand(10, 1))

def compiled_in_place():
    module = one_output()
    module[0].compile(backend="eager")
    return module, lambda size: (torch.rand(size, 13), torch.rand(size, 1))

class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(13, 1)

    def forward(self, x, mask=None):
        return self.linear(x if mask is None else x * mask)

class WithItsLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(13, 1)

    def forward(self, x, labels=None):
        output = self.linear(x)
        return {"output": output, "loss": None if labels is None else (output - labels).square().mean()}

class WithLabelsAlways(WithItsLoss):
    def forward(self, x, labels):
        return super().forward(x, labels)

def its_loss():
    return WithItsLoss(), lambda size: {"x": torch.rand(size, 13), "labels": torch.rand(size, 1)}

def labels_always():
    return WithLabelsAlways(), its_loss()[1]

def parts(size):
    return torch.rand(size, 13), torch.rand(size, 13), torch.rand(size, 1)

def three_parts():
    return Masked(), parts, lambda output, batch: (output - batch[-1]).square().mean()

def three_parts_of_which_one_is_an_input():
    return one_output(), parts, lambda output, batch: (output - batch[-1]).square().mean()
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module in the current folder."""
    place(tmp_path, monkeypatch, "own_inputs", PROGRAM)
    monkeypatch.delitem(__import__("sys").modules, "own_inputs", raising=False)
    return "own_inputs"


def test_a_batch_of_which_nobody_knows_what_the_module_is_given_is_refused(own: str) -> None:
    """Called with the first part alone, another model was answered for: one without its mask."""
    model = python_model(f"{own}:three_parts")
    with pytest.raises(InvalidBatch, match=r"has 3 parts.*\(\(inputs, mask\), targets\)"):
        trace_workload(Workload(model, 4), plainly=True)
    alone = python_model(f"{own}:three_parts_of_which_one_is_an_input")
    assert trace_workload(Workload(alone, 4), plainly=True).operations


@pytest.mark.parametrize(("function", "fed"), [("its_loss", {"x"}), ("labels_always", {"x", "labels"})])
def test_inference_computes_no_loss_that_a_module_does_without(own: str, function: str, fed: set[str]) -> None:
    """Of a language model it is the largest tensor of the step."""
    built = build_model(python_model(f"{own}:{function}"))
    assert set(built.batch_for("inference", 4)) == fed
    assert set(built.batch_for("training", 4)) == {"x", "labels"}
    steps = [trace_workload(Workload(python_model(f"{own}:{function}"), 4, mode=m), plainly=True) for m in MODES]
    trained, inferred = ({operation.name for operation in step.operations} for step in steps)
    assert "aten.mean" in trained
    assert ("aten.mean" in inferred) is ("labels" in fed)


def test_inference_is_given_a_batch_s_inputs_and_not_its_targets(own: str) -> None:
    built = build_model(python_model(f"{own}:plain_example"))
    (x,) = built.batch_for("inference", 4)
    assert x.shape == (4, 13)
    assert built.forward(built.module, (x,)).shape == (4, 1)
    with pytest.raises(InvalidBatch, match="has 3 parts"):
        build_model(python_model(f"{own}:three_parts")).batch_for("inference", 4)


@pytest.mark.parametrize(
    ("function", "is_compiled"), [("plain_example", False), ("compiled_in_place", True), ("compiled_example", True)]
)
def test_a_trace_says_whether_its_owner_had_the_module_compiled(own: str, function: str, is_compiled: bool) -> None:
    """Its steps run other operations than following it shows."""
    assert trace_workload(Workload(python_model(f"{own}:{function}"), 4), plainly=True).compiled is is_compiled
