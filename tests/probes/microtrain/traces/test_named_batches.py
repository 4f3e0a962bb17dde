"""A batch of one's own may be a named tuple, as torch's own collating makes them, a mapping that is no dict, as
transformers' tokenizers do, or a dataclass."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
import torch

from probes.microtrain.feeding import batch_bytes, map_tensors, tensors_in, to_device
from probes.microtrain.tracing import BATCH_PAIRS, trace_workload
from probes.workload.description import Workload
from probes.workload.models import python_model

PROGRAM = """
from dataclasses import dataclass
from typing import NamedTuple
from collections import UserDict
import torch
from torch import nn

class Batch(NamedTuple):
    inputs: torch.Tensor
    targets: torch.Tensor

def drawn():
    return nn.Linear(4, 2), lambda size: Batch(torch.randn(size, 4), torch.randint(2, (size,)))

def kept():
    return nn.Linear(4, 2), Batch(torch.randn(32, 4), torch.randint(2, (32,)))

class Encoding(UserDict):
    # as transformers' BatchEncoding
    def __getattr__(self, name):
        try:
            return self.data[name]
        except KeyError:
            raise AttributeError(name) from None

class Encoded(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, rows, labels=None):
        output = self.layer(rows)
        return output if labels is None else {"loss": nn.functional.cross_entropy(output, labels)}

class WithOne(Encoded):
    def forward(self, encoding):
        return super().forward(encoding.rows, **{key: encoding[key] for key in encoding if key != "rows"})

def encoding(size):
    return Encoding(rows=torch.randn(size, 4), labels=torch.randint(2, (size,)))

def encoded():
    return Encoded(), encoding

def encoded_example():
    return Encoded(), encoding(32)

def encoded_in_one_argument():
    return WithOne(), lambda size: (Encoding(rows=torch.randn(size, 4)), torch.randint(2, (size,)))

@dataclass
class Fields:
    rows: torch.Tensor
    labels: torch.Tensor

class OfFields(Encoded):
    def forward(self, batch):
        return super().forward(batch.rows, batch.labels)

def fields():
    return OfFields(), lambda size: Fields(torch.randn(size, 4), torch.randint(2, (size,)))

def fields_example():
    return OfFields(), Fields(torch.randn(32, 4), torch.randint(2, (32,)))
"""


class Pair(NamedTuple):
    first: torch.Tensor
    second: list[torch.Tensor]


def test_the_class_of_a_batch_stays_what_it_was() -> None:
    batch = map_tensors(Pair(torch.ones(1), [torch.ones(2)]), lambda tensor: 2 * tensor)
    assert isinstance(batch, Pair)
    assert batch.second[0].tolist() == [2.0, 2.0]
    assert map_tensors((torch.ones(1),), lambda tensor: tensor)[0].tolist() == [1.0]


@pytest.mark.parametrize("kind", [UserDict, MappingProxyType])
def test_a_mapping_that_is_no_dict_is_put_on_a_device_whole(kind: Any) -> None:
    batch = kind({"rows": torch.ones(3), "names": ["a", "b"]})
    assert batch_bytes(batch) == 12
    changed = map_tensors((batch, torch.ones(1)), lambda tensor: 2 * tensor)[0]
    assert changed["rows"].tolist() == [2.0] * 3
    assert changed["names"] == ["a", "b"]
    assert isinstance(changed, UserDict) or kind is MappingProxyType
    assert batch["rows"].tolist() == [1.0] * 3


FUNCTIONS = ("drawn", "kept", "encoded", "encoded_example", "encoded_in_one_argument", "fields", "fields_example")


@pytest.mark.parametrize("function", FUNCTIONS)
def test_own_code_may_give_one(function: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "named_batches_of_mine.py").write_text(PROGRAM)
    monkeypatch.syspath_prepend(str(tmp_path))
    trace = trace_workload(Workload(python_model(f"named_batches_of_mine:{function}"), 8), plainly=True)
    assert trace.parameters == 10
    assert trace.batch_sizes == BATCH_PAIRS[0]
    assert trace.input_bytes.per_sample == 4 * 4 + 8


@dataclass(frozen=True)
class Frozen:
    rows: torch.Tensor
    more: list[torch.Tensor]
    name: str = "a"
    later: torch.Tensor = field(init=False)  # nobody has set it


def test_a_dataclass_is_put_on_a_device_whole() -> None:
    given = Frozen(torch.ones(3), [torch.zeros(2)])
    assert [tensor.numel() for tensor in tensors_in(given)] == [3, 2]
    assert batch_bytes((given, None)) == 20
    moved = to_device(given, torch.device("meta"))
    assert isinstance(moved, Frozen)
    assert moved.rows.is_meta
    assert moved.more[0].is_meta
    assert moved.name == "a"
    assert not given.rows.is_meta
    assert map_tensors(Frozen, torch.neg) is Frozen  # the class itself is a value like others


class Stored(MutableMapping[str, Any]):
    """Says nothing of how it is copied: a plain copy has the same store."""

    def __init__(self, **entries: Any) -> None:
        self._store = dict(entries)

    def __getitem__(self, name: str) -> Any:
        return self._store[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._store[name] = value

    def __delitem__(self, name: str) -> None:
        del self._store[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._store)

    def __len__(self) -> int:
        return len(self._store)


@pytest.mark.parametrize("kind", [Stored, UserDict, dict])
def test_what_becomes_of_a_batch_leaves_the_given_one_alone(kind: Any) -> None:
    given = kind(x=torch.zeros(3))
    changed = map_tensors(given, lambda tensor: tensor + 1)
    assert torch.equal(given["x"], torch.zeros(3))
    assert torch.equal(changed["x"], torch.ones(3))


def test_inputs_that_ask_for_gradients_are_leaves_where_they_are_used() -> None:
    """Else the second step of a batch would go backward through what the first has freed."""
    x = torch.rand(4, 2, requires_grad=True)
    moved = to_device({"x": x, "y": x * 2, "n": torch.zeros(4)}, torch.device("meta"))
    assert [moved[name].is_leaf for name in "xyn"] == [True, True, True]
    assert [moved[name].requires_grad for name in "xyn"] == [True, True, False]
    here = to_device({"x": x}, torch.device("cpu"))
    assert here["x"] is x
