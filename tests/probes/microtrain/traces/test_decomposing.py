"""Composite operations run the parts that a step runs which nobody watches."""

from typing import Any

import pytest
import torch
from torch import nn
from torch._ops import OpOverload
from torch.profiler import profile

from probes.microtrain.calibration.operation_clock import EachOperation
from probes.microtrain.traces.recording import Recorder

PRODUCTS = {"aten.bmm", "aten.mm", "aten.addmm", "aten.clone"}


class Named(EachOperation):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def _run(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.names.append(str(func._overloadpacket))
        return func(*args, **kwargs)


def _products(names: list[str]) -> list[str]:
    return [name for name in names if name in PRODUCTS]


@pytest.mark.parametrize("mode", ["training", "inference"])
@pytest.mark.parametrize("trained", [True, False])
def test_a_product_folds_as_it_does_unwatched(mode: str, trained: bool) -> None:
    """A linear layer behind a transpose copies its input where its weight is trained, and else multiplies in batches:
    whether a view of the weight asks for a gradient says so."""
    layer, rows = nn.Linear(8, 4).requires_grad_(trained), torch.randn(2, 8, 16).mT
    with torch.inference_mode(mode == "inference"):
        with profile() as unwatched:
            layer(rows)
        with Recorder() as recorder:
            layer(rows)
        with Named() as clocked:
            layer(rows)
    real = _products([event.name.replace("::", ".") for event in unwatched.events()])
    assert real == (["aten.clone", "aten.mm"] if trained else ["aten.bmm"])
    assert _products([record.name for record in recorder.records]) == _products(clocked.names) == real
    assert any(record.name == "aten.add_" for record in recorder.records)


def test_views_within_views_are_tracked_once() -> None:
    """As torch refuses what is made a view twice."""
    rows = torch.randn(8, 6)
    with torch.inference_mode():
        with Recorder() as recorder:
            parts = [rows.chunk(4)[1], rows.tensor_split(3)[1], *rows.unflatten(0, (2, 4)).swapaxes(0, 1)[:1].unbind()]
        assert not any(part.is_inference() for part in parts)
        assert all(part._base is rows for part in parts)
    assert all(record.kind == "view" for record in recorder.records)
