"""A step that is another one at other batch sizes is not told by the one at two of them."""

from pathlib import Path
from typing import Any

import pytest

from probes.microtrain.tracing import BATCH_PAIRS, Untraceable, trace_workload
from probes.trace import Trace
from probes.workload.description import Workload
from probes.workload.models import python_model
from tests.probes.microtrain.traces.test_tracing_own_code import place

PROGRAM = """
import random
import torch
from torch import nn


class Branching(nn.Module):
    # one of two layers, by what it asks the batch
    def __init__(self, asks):
        super().__init__()
        self.asks, self.few, self.many = asks, nn.Linear(8, 8), nn.Linear(8, 64)
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x):
        x = self.norm(x) if self.training else x
        return (self.many if self.asks(x) else self.few)(x).sum(1, keepdim=True).expand(-1, 3)


class InParts(nn.Module):
    def __init__(self, part):
        super().__init__()
        self.part, self.net = part, nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 3))

    def forward(self, x):
        return torch.cat([self.net(each) for each in self.part(x)])


class Shortened(nn.Module):
    # no more than so many samples
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(8, 64)

    def forward(self, x):
        return self.net(x[:100]).square().mean()


class Seconds(nn.Module):
    # every second step is another one
    def __init__(self):
        super().__init__()
        self.first, self.second, self.steps = nn.Linear(8, 8), nn.Linear(8, 3), 0

    def forward(self, x):
        self.steps += 1
        return self.second(self.first(x).relu() if self.steps % 2 else x)


class Guarded(Branching):
    # for one sample alone batch norm has no deviation
    def forward(self, x):
        x = self.norm(x) if x.size(0) > 1 else x
        return self.few(x)


class Experts(nn.Module):
    # for each sample one of sixteen
    def __init__(self):
        super().__init__()
        self.gate, self.experts = nn.Linear(8, 16), nn.ModuleList(nn.Linear(8, 8) for _ in range(16))

    def forward(self, x):
        chosen = nn.functional.one_hot(self.gate(x).argmax(-1), 16).t()
        out = torch.zeros_like(x)
        for mask, expert in zip(chosen, self.experts):
            (taken,) = torch.where(mask)
            out = out.index_add(0, taken, expert(x[taken]))
        return out


class Drawn(Branching):
    # each sample draws, and the last of them decides
    def forward(self, x):
        drawn = [random.random() for _ in range(len(x))]
        return self.few(self.few(x).relu() if 0.3 < drawn[-1] < 0.6 else x)


class Near(nn.Module):
    # torch measures distances of few rows otherwise than of many
    def __init__(self):
        super().__init__()
        self.places = nn.Parameter(torch.randn(3, 8))

    def forward(self, x):
        return -torch.cdist(x, self.places)


def rows(size):
    return torch.randn(size, 8), torch.randint(3, (size,))

def pictures(size):
    return {"x": torch.randn(8, size).t(), "name": "one"}, torch.randint(3, (size,))

def unknown(size):
    return {"x": torch.randn(size, 8), "sizes": torch.arange(size + 1)}, torch.randint(3, (size,))

class Taking(Branching):
    def forward(self, x, name=None, sizes=None):
        return super().forward(x)

def many():
    return Branching(lambda x: len(x) > 100), rows

def few():
    return Branching(lambda x: x.shape[0] < 4), rows

def odd():
    return Branching(lambda x: x.size(0) % 2), rows

def transposed():
    return Taking(lambda x: len(x) > 1000), pictures

def unsaid():
    return Taking(lambda x: len(x) > 1000), unknown

def in_parts_of_64():
    return InParts(lambda x: x.split(64)), rows

def in_four_parts():
    return InParts(lambda x: x.chunk(4)), rows

def shortened():
    return Shortened(), lambda size: {"x": torch.randn(size, 8)}

def each_second():
    return Seconds(), rows

def near():
    return Near(), rows

def guarded():
    return Guarded(None), rows

def experts():
    return Experts(), rows

def drawn():
    return Drawn(None), rows
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    place(tmp_path, monkeypatch, "own_sizes", PROGRAM)
    return "own_sizes"


def trace(own: str, function: str, mode: Any = "training") -> Trace:
    return trace_workload(Workload(python_model(f"{own}:{function}"), 4, mode), plainly=True)


@pytest.mark.parametrize("mode", ["training", "inference"])
@pytest.mark.parametrize("function", ["many", "few", "odd", "transposed", "in_parts_of_64", "shortened"])
def test_a_step_that_asks_for_the_size_of_its_batch_is_refused_by_name(own: str, function: str, mode: Any) -> None:
    """At few samples, where one alone is refused in training, or at many more than were traced."""
    with pytest.raises(Untraceable, match=r"another one in this model.*aten\.\w+ shows it.*Measure it instead"):
        trace(own, function, mode)


@pytest.mark.parametrize("mode", ["training", "inference"])
@pytest.mark.parametrize("function", ["in_four_parts", "each_second", "near", "unsaid", "guarded", "experts", "drawn"])
def test_other_steps_are_told(own: str, function: str, mode: Any) -> None:
    """Fewer samples are in fewer parts, chance and time have a say of their own, other kernels are torch's affair, of
    batches that say nothing of other sizes nobody knows, one sample alone is apart, and which expert is chosen is what
    we took it for."""
    assert trace(own, function, mode).batch_sizes in BATCH_PAIRS
