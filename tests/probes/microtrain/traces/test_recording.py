"""What a step runs is recorded in the types that it runs it in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._ops import HigherOrderOperator, OpOverload

from probes.context import ENCODER_LAYER
from probes.microtrain.calibration.operation_clock import EachOperation
from probes.microtrain.failures import Untraceable
from probes.microtrain.traces.recording import Recorder

Part = Callable[[torch.Tensor], torch.Tensor]
WEIGHT = torch.randn(8, 8)
LINEAR = nn.Linear(8, 8)
# torch's autocast knows the one and not the other, which is made of products that it knows.
PARTS: dict[str, Part] = {
    "aten.addmm": LINEAR,
    "aten.bmm": lambda x: torch.einsum("ij,kj->ik", x, WEIGHT),
}


def step(part: Part, mode: str, autocast: bool, *shape: int) -> None:
    """Twice: in a region where autocast is what it is not around it, and in none."""
    with torch.inference_mode(mode == "inference"), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        data = torch.randn(*shape)
        with torch.autocast("cpu", torch.bfloat16, enabled=not autocast):
            part(data)
        part(data)


class Clocked(EachOperation):
    """By name, the type of each operation's last argument, as a clock times it."""

    def __init__(self) -> None:
        super().__init__()
        self.types: list[tuple[str, torch.dtype]] = []

    def _run(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        last = args[-1] if args else None
        if isinstance(last, torch.Tensor):
            self.types.append((str(func._overloadpacket), last.dtype))
        return func(*args, **kwargs)


@pytest.mark.parametrize("mode", ["training", "inference"])
@pytest.mark.parametrize("autocast", [True, False])
@pytest.mark.parametrize("name", PARTS)
def test_a_region_within_a_step_casts_by_itself(name: str, autocast: bool, mode: str) -> None:
    expected = ["float32", "bfloat16"] if autocast else ["bfloat16", "float32"]
    with Recorder() as recorder:
        step(PARTS[name], mode, autocast, 4, 8)
    assert [record.dtype for record in recorder.records if record.name == name] == expected
    with Clocked() as clocked:
        step(PARTS[name], mode, autocast, 4, 8)
    assert [dtype for each, dtype in clocked.types if each == name] == [getattr(torch, dtype) for dtype in expected]


@pytest.mark.parametrize("autocast", [True, False])
def test_a_layer_that_computes_whole_is_cast_where_it_is_asked_for_so(autocast: bool) -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    with Recorder() as recorder:
        step(layer, "inference", autocast, 2, 3, 8)
    found = [(record.dtype, call) for record, call in zip(recorder.records, recorder.calls, strict=True)
             if record.name == ENCODER_LAYER]  # fmt: skip
    assert [dtype for dtype, _ in found] == (["float32", "bfloat16"] if autocast else ["bfloat16", "float32"])
    assert [call is not None and call.autocast for _, call in found] == ([False, True] if autocast else [True, False])


class Applied(HigherOrderOperator):
    """As torch's flex_attention and cond are."""

    def __init__(self) -> None:
        super().__init__("applied_for_a_test")

    def __call__(self, function: Part, data: torch.Tensor) -> Any:
        return super().__call__(function, data)


def test_an_operator_that_runs_functions_is_refused_by_name() -> None:
    applied = Applied()
    applied.py_impl(torch._C.DispatchKey.CPU)(lambda function, data: function(data))
    with torch.inference_mode():
        assert applied(torch.neg, torch.ones(2)).tolist() == [-1, -1]
        with pytest.raises(Untraceable, match=r"^applied_for_a_test in this model.*Measure it instead"), Recorder():
            applied(torch.neg, torch.ones(2))
