"""A batch of one's own may be a named tuple, as torch's own collating makes them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from probes.microtrain.feeding import map_tensors
from probes.microtrain.tracing import trace_workload
from probes.workload.description import Workload
from probes.workload.models import python_model

PROGRAM = """
from typing import NamedTuple
import torch
from torch import nn

class Batch(NamedTuple):
    inputs: torch.Tensor
    targets: torch.Tensor

def drawn():
    return nn.Linear(4, 2), lambda size: Batch(torch.randn(size, 4), torch.randint(2, (size,)))

def kept():
    return nn.Linear(4, 2), Batch(torch.randn(32, 4), torch.randint(2, (32,)))
"""


class Pair(NamedTuple):
    first: torch.Tensor
    second: list[torch.Tensor]


def test_the_class_of_a_batch_stays_what_it_was() -> None:
    batch = map_tensors(Pair(torch.ones(1), [torch.ones(2)]), lambda tensor: 2 * tensor)
    assert isinstance(batch, Pair)
    assert batch.second[0].tolist() == [2.0, 2.0]
    assert map_tensors((torch.ones(1),), lambda tensor: tensor)[0].tolist() == [1.0]


@pytest.mark.parametrize("function", ["drawn", "kept"])
def test_own_code_may_give_one(function: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "named_batches_of_mine.py").write_text(PROGRAM)
    monkeypatch.syspath_prepend(str(tmp_path))
    trace = trace_workload(Workload(python_model(f"named_batches_of_mine:{function}"), 8))
    assert trace.parameters == 10
