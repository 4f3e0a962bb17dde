"""A copy of a module runs the hooks that its parameters have: on a second device, and under fake tensors."""

import warnings
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from probes.microtrain import tracing
from probes.microtrain.building.module_copies import copied
from probes.microtrain.measuring.workbench import Workbench
from probes.microtrain.tracing import trace_workload
from probes.trace import Trace
from probes.workload.description import Workload
from probes.workload.models import python_model
from tests.probes.microtrain.traces.test_tracing_own_code import place


def test_a_copy_keeps_hooks_on_gradients_and_has_numbers_of_its_own() -> None:
    layer, stepped = nn.Linear(3, 2), list[torch.Tensor]()
    layer.weight.register_hook(torch.zeros_like)
    layer.bias.register_post_accumulate_grad_hook(stepped.append)
    new = copied(layer)
    new(torch.ones(1, 3)).sum().backward()
    assert new.weight.grad is not None
    assert not new.weight.grad.any()
    assert stepped[0] is new.bias
    assert layer.weight.grad is None
    assert torch.equal(new.weight, layer.weight)


def test_hooks_that_are_taken_off_a_module_stay_on_its_copy() -> None:
    layer = nn.Linear(3, 2)
    handle = layer.weight.register_hook(torch.zeros_like)
    new = copied(layer)
    handle.remove()
    for module in (layer, new):
        module(torch.ones(1, 3)).sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.any()
    assert new.weight.grad is not None
    assert not new.weight.grad.any()


def test_parameters_that_layers_share_are_shared_in_a_copy() -> None:
    one, other = nn.Linear(3, 3), nn.Linear(3, 3)
    other.weight = one.weight
    new = copied(nn.Sequential(one, other))
    assert new[0].weight is new[1].weight


def computed() -> nn.Sequential:
    """Weights that are computed anew for each step."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        normed = torch.nn.utils.weight_norm(nn.Linear(8, 4))
    return nn.Sequential(normed, prune.l1_unstructured(nn.Linear(4, 3), "weight", 0.5))


def test_a_module_whose_weights_are_computed_in_each_step_is_copied() -> None:
    module, rows = computed(), torch.randn(5, 8)
    new = copied(module)
    assert torch.equal(new(rows), module(rows))
    new(rows).sum().backward()
    assert all(parameter.grad is None for parameter in module.parameters())


PROGRAM = """
import torch
from torch import nn
from tests.probes.microtrain.building.test_module_copies import computed

def batch(size):
    return torch.randn(size, 8), torch.randint(3, (size,))

def net():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))

def plain():
    return net(), batch

def clipped():
    module = net()
    for parameter in module.parameters():
        parameter.register_hook(lambda gradient: gradient.clamp(-1, 1))
    return module, batch

def masked():
    # by a tensor that is as real as the module
    module, mask = net(), torch.ones(16, 8)
    module[0].weight.register_hook(lambda gradient: gradient * mask)
    return module, batch

def stepped(parameter):
    parameter.sub_(parameter.grad, alpha=0.1)
    parameter.grad = None

def fused():
    module = net()
    for parameter in module.parameters():
        parameter.register_post_accumulate_grad_hook(stepped)
    return module, batch

def anew():
    return computed(), batch
"""


@pytest.fixture
def own_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    place(tmp_path, monkeypatch, "own_hooks", PROGRAM)
    return "own_hooks"


def traced(own_code: str, function: str) -> Trace:
    trace = trace_workload(Workload(python_model(f"{own_code}:{function}"), 4))
    assert trace.batch_sizes == tracing.BATCH_PAIRS[0]  # under fake tensors
    return trace


def backward(trace: Trace) -> Counter[str]:
    """How often each operation runs."""
    names = Counter[str]()
    for operation in trace.operations:
        if operation.phase == "backward":
            names[operation.name] += int(operation.count)
    return names


@pytest.mark.parametrize(("function", "name", "count"), [("clipped", "aten.clamp", 4), ("masked", "aten.mul", 1)])
def test_what_hooks_do_to_gradients_is_traced(own_code: str, function: str, name: str, count: int) -> None:
    more = backward(traced(own_code, function)) - backward(traced(own_code, "plain"))
    assert more[name] == count


def test_gradients_that_hooks_take_are_not_there_after_a_step(own_code: str) -> None:
    plain, fused = traced(own_code, "plain"), traced(own_code, "fused")
    assert plain.gradient_bytes == fused.parameter_bytes == plain.parameter_bytes
    assert (fused.gradient_bytes, fused.optimizer_bytes) == (0, 0)
    assert backward(fused)["aten.sub_"] == 4
    assert not [operation for operation in fused.operations if operation.phase == "optimizer"]


def test_a_module_whose_weights_are_computed_is_measured_on_several_devices(own_code: str) -> None:
    bench = Workbench(Workload(python_model(f"{own_code}:anew"), 8), frozenset(["cpu", "meta"]))
    assert bench.replica("meta").module is not bench.build().module
