"""Which kernel an operation's arguments choose, as a trace tells it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional

from probes.microtrain.traces.recording import Record, Recorder

CASES: dict[str, tuple[Callable[[torch.Tensor], object], str, str]] = {
    "square": (lambda x: x**2, "aten.pow", "short"),
    "cube": (lambda x: x**3.0, "aten.pow", "short"),
    "root": (lambda x: x.pow(0.5), "aten.pow", "short"),
    "inverse": (lambda x: x.pow_(-1), "aten.pow_", "short"),
    "fourth power": (lambda x: x**4, "aten.pow", ""),
    "broken power": (lambda x: x**1.5, "aten.pow", ""),
    "power of a tensor": (lambda x: x**x, "aten.pow", ""),
    "power of two": (lambda x: 2**x, "aten.pow", ""),
    "gelu": (functional.gelu, "aten.gelu", ""),
    "gelu by tanh": (lambda x: functional.gelu(x, approximate="tanh"), "aten.gelu", "tanh"),
    "norm": (lambda x: x.norm(dim=1), "aten.linalg_vector_norm", ""),
    "norm by name": (lambda x: torch.linalg.vector_norm(x, ord=2), "aten.linalg_vector_norm", ""),
    "sum of absolutes": (lambda x: torch.linalg.vector_norm(x, 1), "aten.linalg_vector_norm", "other-order"),
    "largest": (lambda x: x.norm(float("inf")), "aten.linalg_vector_norm", "other-order"),
    "quotient": (lambda x: x / x, "aten.div", ""),
    "cut off": (lambda x: torch.div(x, x, rounding_mode="trunc"), "aten.div", ""),
    "rounded down": (lambda x: torch.div(x, x, rounding_mode="floor"), "aten.div", "floor"),
    "distances": (lambda x: torch.cdist(x, x), "aten._cdist_forward", ""),
    "city blocks": (lambda x: torch.cdist(x, x, p=1.0), "aten._cdist_forward", "other-order"),
}


def _recorded(run: Callable[[], object]) -> list[Record]:
    recorder = Recorder()
    with recorder:
        run()
    return recorder.records


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("faked", [False, True])
def test_a_trace_says_which_kernel_the_arguments_choose(name: str, faked: bool) -> None:
    act, operation, variant = CASES[name]
    real = torch.ones(4, 4)
    x = FakeTensorMode().from_tensor(real) if faked else real
    found = [record.variant for record in _recorded(lambda: act(x)) if record.name == operation]
    assert found == [variant]


def test_one_recorder_tells_powers_of_equal_tensors_apart() -> None:
    x = torch.ones(4, 4)
    assert [each.variant for each in _recorded(lambda: (x**2, x**1.5, x**2))] == ["short", "", "short"]


def test_what_goes_back_through_gelu_is_told_like_it() -> None:
    x = torch.ones(4, 4, requires_grad=True)
    records = _recorded(lambda: functional.gelu(x, approximate="tanh").sum().backward())
    assert [each.variant for each in records if "gelu" in each.name] == ["tanh", "tanh"]


@pytest.mark.parametrize(
    ("shape", "dim", "variant"),
    [((8, 3), 1, "short-rows"), ((8, 3), -1, "short-rows"), ((8, 3), 0, ""), ((8, 300), 1, ""), ((), 0, "")],
)
def test_a_softmax_of_few_numbers_is_told_from_others_forward_and_backward(
    shape: tuple[int, ...], dim: int, variant: str
) -> None:
    x = torch.ones(shape, requires_grad=True)
    records = _recorded(lambda: (torch.log_softmax(x, dim).sum() + torch.softmax(x, dim).sum()).backward())
    found = {record.name: record.variant for record in records if "softmax" in record.name}
    backwards = ("aten._softmax_backward_data", "aten._log_softmax_backward_data")
    assert found == dict.fromkeys(("aten._softmax", "aten._log_softmax", *backwards), variant)
