"""A make_batch that does not give the samples it is asked for is refused by name; one that gives them in another way is
believed."""

from __future__ import annotations

import random
from collections import UserDict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

from probes.microtrain import tracing
from probes.microtrain.building.samples_asked import InvalidBatch, OtherSamples, asked_for_samples, refuse_hidden
from probes.microtrain.measuring.workbench import Workbench
from probes.microtrain.tracing import Untraceable, trace_workload
from probes.workload.description import Workload
from probes.workload.models import python_model
from tests.probes.microtrain.traces.test_tracing_own_code import place

ROWS = torch.randn(64, 4)
LOADED = cycle([(torch.randn(64, 4), torch.randint(2, (64,)))])


def capped(size: int) -> Any:
    return ROWS[:size], ROWS[:size, 0]


def ignoring(_: int) -> Any:
    return next(LOADED)


REFUSED = (*((capped, size) for size in (65, 86, 256)), *((ignoring, size) for size in (1, 2, 32, 4096)))


@pytest.mark.parametrize(("make", "size"), REFUSED)
def test_a_batch_of_other_samples_than_were_asked_for_is_refused(make: Callable[[int], Any], size: int) -> None:
    with pytest.raises(InvalidBatch, match=rf"^make_batch of own:f gives .* the same shapes for {size} samples"):
        asked_for_samples("own:f", make)(size)


class Graph:
    """Of a library of its own: it has tensors, and knows how to move them."""

    def __init__(self, rows: torch.Tensor) -> None:
        self._store = {"rows": rows}

    def to(self, device: torch.device) -> Graph:
        return Graph(self._store["rows"].to(device))


def graph(size: int) -> Any:
    return {"graph": Graph(torch.randn(size, 4)), "names": ["a"] * size}


def plain_object(size: int) -> Any:
    return SimpleNamespace(x=torch.randn(size, 4)), None


def beside_labels(size: int) -> Any:
    return Graph(torch.randn(size, 4)), torch.zeros(size)


def object_beside_labels(size: int) -> Any:
    return SimpleNamespace(inputs={"x": torch.randn(size, 4)}), torch.zeros(size)


@dataclass
class Masked:
    x: torch.Tensor

    def __post_init__(self) -> None:
        self.mask = self.x > 0


def beyond_the_fields(size: int) -> Any:
    return Masked(torch.randn(size, 4))


HIDING = (
    *((graph, "Graph"), (plain_object, "SimpleNamespace"), (beside_labels, "Graph")),
    *((object_beside_labels, "SimpleNamespace"), (beyond_the_fields, "Masked")),
)


@pytest.mark.parametrize(("make", "name"), HIDING)
def test_a_batch_whose_tensors_nobody_finds_is_refused(make: Callable[[int], Any], name: str) -> None:
    with pytest.raises(InvalidBatch, match=f"^make_batch of own:f gives a {name}, and where its tensors lie is not"):
        asked_for_samples("own:f", make)(8)


class Entries(UserDict[str, Any]):
    """Keeps its entries as an attribute, as transformers' BatchEncoding does, and moves them."""

    def to(self, _: torch.device) -> None: ...


def test_what_hides_no_tensor_may_stand_beside_them() -> None:
    about = SimpleNamespace(names=["a"], loader=SimpleNamespace(rows={"x": ROWS}))
    refuse_hidden("It gives", (Entries(x=ROWS), {"about": about, "on": torch.device("cpu"), "kind": Graph}, Entries()))


def plain(size: int) -> Any:
    return torch.randn(size, 4)


def rounded_up(size: int) -> Any:
    return torch.randn(-(-size // 64) * 64, 4)


def at_least_two(size: int) -> Any:
    return {"x": torch.randn(max(size, 2), 4)}


def packed_into_rows(size: int) -> Any:
    return torch.zeros(-(-size // 32), 2048)


def ragged(size: int) -> Any:
    return [torch.randn(random.randint(1, 9), 4) for _ in range(size)]


def packed(size: int) -> Any:
    return pack_sequence([torch.randn(1 + number % 3, 4) for number in range(size)], enforce_sorted=False)


def places_first(size: int) -> Any:
    return torch.randn(9, size, 4), torch.zeros(9, 9)


def in_several_dimensions(size: int) -> Any:
    return torch.randn(4, -(-size // 4), 4)


def without_tensors(size: int) -> Any:
    return {"rows": "unknown", "seed": torch.zeros(())}


def even_only(size: int) -> Any:
    if size % 64:
        raise ValueError("whole parts only")
    return torch.randn(64, 4)


WAYS = (plain, rounded_up, at_least_two, packed_into_rows, ragged, packed, places_first, in_several_dimensions)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 16, 32, 64, 65, 100, 256])
@pytest.mark.parametrize("make", [*WAYS, without_tensors])
def test_samples_that_are_there_in_another_way_are_believed(make: Callable[[int], Any], size: int) -> None:
    asked_for_samples("own:f", make)(size)


def test_where_there_is_no_other_batch_the_one_is_believed() -> None:
    assert asked_for_samples("own:f", even_only)(64).shape == (64, 4)


@pytest.mark.parametrize(("rows", "asked_for"), [(1, [16, 16, 32, 16]), (3, [16, 32, 16, 32, 64, 16])])
def test_a_size_is_looked_at_once_and_costs_a_larger_batch_where_no_dimension_tells(
    rows: int, asked_for: list[int]
) -> None:
    asked: list[int] = []

    def make(size: int) -> torch.Tensor:
        asked.append(size)
        return torch.randn(rows * size)

    checked = asked_for_samples("own:f", make)
    for size in (16, 16, 32, 16):
        checked(size)
    assert asked == asked_for


def test_no_more_is_asked_for_than_goes_with_the_batch() -> None:
    asked: list[int] = []

    def cut_to_a_budget(size: int) -> torch.Tensor:
        asked.append(size)
        return torch.zeros(65_536)

    with pytest.raises(OtherSamples):
        asked_for_samples("own:f", cut_to_a_budget)(2)
    assert max(asked) == 2 * 65_536
    assert len(asked) == 5


TIMES_FIRST = (torch.randn(35, 20), torch.zeros(700))
IMAGES = [torch.randn(3, 8, 8) for _ in range(4)]


@pytest.mark.parametrize(("batch", "size"), [(TIMES_FIRST, 20), ((IMAGES, [0, 1, 2, 3]), 4), ({"x": IMAGES}, 4)])
def test_a_loader_of_just_as_many_samples_is_believed_wherever_they_lie(batch: Any, size: int) -> None:
    assert asked_for_samples("own:f", lambda _: batch)(size) is batch
    with pytest.raises(OtherSamples):
        asked_for_samples("own:f", lambda _: batch)(size + 13)


def test_chance_goes_on_as_if_nothing_had_been_looked_at() -> None:
    def make(size: int) -> torch.Tensor:
        return torch.rand(3 * size) + random.random()

    drawn = []
    for made in (make, asked_for_samples("own:f", make)):
        torch.manual_seed(3)
        random.seed(3)
        drawn.append(made(8))
    assert torch.equal(*drawn)


PROGRAM = """
from itertools import cycle
import torch
from torch import nn

ROWS, LABELS = torch.randn(20, 4), torch.randint(3, (20,))

def capped():
    return nn.Linear(4, 3), lambda size: (ROWS[:size], LABELS[:size])

def loaded():
    batches = cycle([(ROWS, LABELS)])
    return nn.Linear(4, 3), lambda size: next(batches)

def filled_up():
    def batch(size):
        size = -(-size // 64) * 64
        return torch.randn(size, 4), torch.randint(3, (size,))
    return nn.Linear(4, 3), batch
"""


@pytest.mark.parametrize("most_bytes", [50, tracing.MAX_REAL_PARAMETER_BYTES])
@pytest.mark.parametrize("function", ["capped", "loaded"])
def test_no_step_of_it_is_traced_or_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, most_bytes: int
) -> None:
    place(tmp_path, monkeypatch, "own_batches", PROGRAM)
    monkeypatch.setattr(tracing, "MAX_REAL_PARAMETER_BYTES", most_bytes)
    workload = Workload(python_model(f"own_batches:{function}"), 256)
    with pytest.raises(Untraceable, match=f"own_batches:{function} gives batches of the same shapes"):
        trace_workload(workload, plainly=True)
    with pytest.raises(InvalidBatch, match="256 samples and for many more"):
        Workbench(workload, frozenset(["cpu"])).ring(256)


@pytest.mark.parametrize("function", ["capped", "loaded"])
def test_a_whole_data_set_is_a_batch_of_its_own_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    place(tmp_path, monkeypatch, "own_batches", PROGRAM)
    workload = Workload(python_model(f"own_batches:{function}"), 20)
    assert len(Workbench(workload, frozenset(["cpu"])).ring(20)[0][0]) == 20


def test_batches_that_are_filled_up_are_measured_and_tell_of_no_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place(tmp_path, monkeypatch, "own_batches", PROGRAM)
    workload = Workload(python_model("own_batches:filled_up"), 16)
    assert len(Workbench(workload, frozenset(["cpu"])).ring(16)[0][0]) == 64
    with pytest.raises(Untraceable, match=r"A step of 32 samples is one of 16 in this model.*effort quick"):
        trace_workload(workload, plainly=True)
