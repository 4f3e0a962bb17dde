"""What a trace cannot follow is refused before a step is taken, in a sentence that says what to do."""

from pathlib import Path
from typing import Any

import pytest

from probes.microtrain.step import UnsupportedWorkload
from probes.microtrain.tracing import BATCH_PAIRS, LIGHT_BATCH_PAIRS, Untraceable, trace_workload
from probes.trace import Trace
from probes.workload.description import InvalidModel, Workload
from probes.workload.models import python_model

PROGRAM = """
import torch
from torch import nn


def rows(size):
    return torch.randn(size, 4), torch.randn(size, 3)

def padded():
    def batch(size):
        longest = int(torch.randint(5, 500, (size,)).max())
        return torch.randn(size, longest, 4), torch.randn(size, longest, 3)
    return nn.Linear(4, 3), batch

def of_one_length():
    return nn.Linear(4, 3), lambda size: (torch.randn(size, 9, 4), torch.randn(size, 9, 3))

def grouped():
    # so many classes, and of each as many
    def batch(size):
        assert size % 8 == 0, "a batch is eight classes"
        return rows(size)
    return nn.Linear(4, 3), batch

def in_pairs_of_pairs():
    class Mining(nn.Linear):
        def forward(self, x):
            return super().forward(x) if (x > -100).all() else x[:, :3]
    def batch(size):
        assert size % 4 == 0, "a batch is pairs of pairs"
        return rows(size)
    return Mining(4, 3), batch

def never():
    def batch(size):
        raise AssertionError("no batch is like this")
    return nn.Linear(4, 3), batch


def tokens(size):
    return torch.randint(50, (size, 6)), torch.randn(size, 6, 3)

def table():
    return nn.Sequential(nn.Embedding(50, 4, sparse=True), nn.Linear(4, 3)), tokens

def frozen_table():
    module, batch = table()
    module[0].requires_grad_(False)
    return module, batch


class Linked(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("links", torch.eye(4).to_sparse())

    def forward(self, x):
        return self.layer(torch.sparse.mm(self.links, x.T).T)

def linked():
    return Linked(), rows


class Thinned(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        return torch.sparse.mm(x.to_sparse(), self.layer.weight.T)

def thinned():
    return Thinned(), rows


def lazy():
    return nn.Sequential(nn.LazyBatchNorm1d(), nn.LazyLinear(3)), rows

def lazy_and_called():
    module = nn.Sequential(nn.LazyBatchNorm1d(), nn.LazyLinear(3))
    module(rows(2)[0])
    return module, rows

def frozen():
    return nn.Linear(4, 3).requires_grad_(False), rows


class Reading(nn.Linear):
    def forward(self, x):
        raise RuntimeError("the weights in /home/somebody/weights.pt are too old")

def reading():
    return Reading(4, 3), rows
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module in the current folder."""
    (tmp_path / "own_untraceable.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "own_untraceable"


def trace(own: str, function: str, **options: Any) -> Trace:
    return trace_workload(Workload(python_model(f"{own}:{function}"), 4, **options), plainly=True)


def test_batches_of_lengths_that_chance_decides_tell_of_no_line(own: str) -> None:
    with pytest.raises(Untraceable, match=r"several shapes.*one usual length.*effort quick"):
        trace(own, "padded")
    assert trace(own, "of_one_length").operations


@pytest.mark.parametrize(
    ("function", "pair"), [("grouped", BATCH_PAIRS[0]), ("in_pairs_of_pairs", LIGHT_BATCH_PAIRS[0])]
)
def test_batches_that_are_made_of_multiples_alone_are_looked_at_as_they_are_traced(
    own: str, function: str, pair: tuple[int, int]
) -> None:
    assert trace(own, function).batch_sizes == pair


def test_a_batch_that_cannot_be_made_of_what_is_traced_is_told_why(own: str) -> None:
    with pytest.raises(Untraceable, match="AssertionError: no batch is like this"):
        trace(own, "never")


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "rmsprop"])
def test_sparse_gradients_that_no_step_takes_are_told_as_a_measurement_tells_them(own: str, optimizer: Any) -> None:
    with pytest.raises(UnsupportedWorkload, match="sgd and adagrad take them"):
        trace(own, "table", optimizer=optimizer)


@pytest.mark.parametrize("optimizer", ["sgd", "sgd-momentum", "adagrad"])
def test_sparse_gradients_are_not_traced_as_dense_ones(own: str, optimizer: Any) -> None:
    with pytest.raises(Untraceable, match=r"sparse gradients.*effort quick.*with sparse=False it can be traced"):
        trace(own, "table", optimizer=optimizer)


def test_a_table_that_is_not_trained_has_no_gradients_that_could_be_sparse(own: str) -> None:
    assert trace(own, "table", mode="inference").operations
    frozen = trace(own, "frozen_table")
    assert (frozen.parameters, frozen.frozen_parameters) == (15, 200)


@pytest.mark.parametrize("function", ["linked", "thinned"])
def test_sparse_tensors_are_named_where_they_come_up(own: str, function: str) -> None:
    with pytest.raises(Untraceable, match=r"aten\.\w+ in this.* sparse or nested tensors.*effort quick"):
        trace(own, function, mode="inference")


def test_lazy_layers_are_to_be_called_once(own: str) -> None:
    with pytest.raises(InvalidModel, match=r"lazy layers.*Call the module once"):
        trace(own, "lazy")
    assert trace(own, "lazy_and_called").parameters == 8 + 15


def test_a_model_with_nothing_to_train_is_told_so_and_nothing_else(own: str) -> None:
    with pytest.raises(UnsupportedWorkload, match=r"^The model has no trainable parameters"):
        trace(own, "frozen")
    assert trace(own, "frozen", mode="inference").operations


def test_a_reason_with_a_path_in_it_is_told_without_the_path(own: str) -> None:
    with pytest.raises(Untraceable, match="the weights in … are too old") as caught:
        trace(own, "reading")
    assert "somebody" not in str(caught.value)
