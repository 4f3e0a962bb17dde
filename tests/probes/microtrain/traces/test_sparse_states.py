"""Which states of an optimizer are mostly zeros."""

from typing import Any

import pytest
import torch
from torch import nn

from probes.context import SPARSE
from probes.microtrain.traces.recording import Recorder
from probes.microtrain.traces.sparse_states import sparse_states
from probes.microtrain.tracing import trace_workload
from probes.workload.description import Workload
from probes.workload.models import parse_model


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.other, self.out = nn.Embedding(50, 4), nn.Embedding(30, 4), nn.Linear(4, 50, bias=False)
        self.out.weight = self.table.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.out(self.table(tokens) + self.other(tokens))).sum()


def stepped(module: nn.Module) -> torch.optim.Optimizer:
    optimizer = torch.optim.AdamW(module.parameters())
    module(torch.zeros(3, dtype=torch.long)).backward()
    optimizer.step()
    return optimizer


def test_a_table_that_only_looking_up_reads_has_sparse_states_and_a_tied_one_has_not() -> None:
    module = Tied()
    optimizer = stepped(module)
    other = optimizer.state[module.other.weight]
    assert sparse_states(module, optimizer) == {id(other["exp_avg"]), id(other["exp_avg_sq"])}
    assert (other["exp_avg_sq"] == 0).float().mean() > 0.9
    assert (optimizer.state[module.table.weight]["exp_avg_sq"] > 0).float().mean() > 0.5
    assert sparse_states(module, None) == frozenset()


def test_what_reads_them_is_recorded_apart_though_shapes_are_alike() -> None:
    one, other = torch.zeros(50, 4), torch.zeros(50, 4)
    with Recorder(sparse={id(other)}) as recorder:
        one.sqrt()
        other.sqrt()
        one.sqrt()
    assert [record.variant for record in recorder.records] == ["", SPARSE, ""]


@pytest.mark.parametrize(("optimizer", "found"), [("adamw", 1), ("sgd", 0)])
def test_a_trace_tells_them_apart(optimizer: Any, found: int) -> None:
    layers = [{"type": "embedding", "in": 500, "out": 8}, "mean", {"type": "linear", "out": 3}]
    workload = Workload(parse_model({"layers": layers, "input_shape": [6]}), 4, optimizer=optimizer)
    trace = trace_workload(workload)
    for precision in ("fp32", "bf16"):
        roots = [each for each in trace.operations_under(precision) if each.name == "aten.sqrt"]
        assert sum(each.count for each in roots if each.variant == SPARSE) == found
