"""Under autocast a traced step has the types that a card's has. What real steps of a card ran is held against it in
tests/benchmarks/test_device_replay."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional

from probes.microtrain.traces.device_autocast import (
    CUDA,
    FP32,
    FP32_OVERLOAD,
    FP32_RESULT,
    WIDEST,
    _registered,
    casts_of_device,
)
from probes.microtrain.traces.recording import Record, Recorder

HEADER = Path(torch.__file__).parent / "include" / "ATen" / "autocast_mode.h"
LOWER = "AT_FORALL_LOWER_PRECISION_FP"
# What autocast_mode.cpp registers beside the header's lists: two of cuDNN's that nothing calls, in half precision, and
# a loss that is forbidden under autocast.
BESIDE = {"cudnn_convolution", "cudnn_convolution_transpose", "binary_cross_entropy"}


def listed(macro: str) -> set[str]:
    """By the header of the torch that is installed: `_(pow, Tensor_Scalar) \\`."""
    _, _, rest = HEADER.read_text().partition(f"#define {macro}(_)")
    rows: list[str] = []
    for line in rest.splitlines()[1:]:
        rows += re.findall(r"_\((\w+(?:, \w+)?)\)", line)
        if not line.endswith("\\"):
            break
    return {row.replace(", ", ".") for row in rows}


@pytest.mark.parametrize(
    ("macro", "ours"),
    [("AT_FORALL_FP32", FP32), ("AT_FORALL_FP32_SET_OPT_DTYPE", FP32_RESULT), ("AT_FORALL_PROMOTE", WIDEST)],
)
def test_the_tables_are_torchs(macro: str, ours: tuple[str, ...]) -> None:
    assert set(ours) == listed(macro)
    assert len(ours) == len(set(ours))


def test_nothing_that_torch_casts_on_a_device_is_left_out() -> None:
    known = {*FP32, *FP32_RESULT, *FP32_OVERLOAD, *WIDEST, *listed(LOWER), *BESIDE}
    assert {name.removesuffix(".deprecated") for name in _registered(CUDA)} <= known


def recorded(run: Callable[[Tensor], Tensor], *shape: int, mode: str = "training") -> tuple[list[Record], list[None]]:
    """Of what is run on fake bf16 numbers under autocast, and a mark for each time that a CPU's does otherwise."""
    taken: list[None] = []
    with FakeTensorMode(), casts_of_device(lambda: taken.append(None)):
        data = torch.randn(*shape, dtype=torch.bfloat16, requires_grad=mode == "training")
        with (
            torch.inference_mode(mode == "inference"),
            Recorder() as recorder,
            torch.autocast("cpu", torch.bfloat16),
        ):
            result = run(data)
        if mode == "training":
            with recorder:
                result.sum().backward()
    return recorder.records, taken


def types(records: list[Record], name: str) -> list[str]:
    return [record.dtype for record in records if record.name == name]


CASES: list[tuple[str, Callable[[Tensor], Tensor], str]] = [
    ("aten.pow", lambda x: x**3.0, "float32"),
    ("aten.softplus", functional.softplus, "float32"),
    ("aten.rsqrt", torch.rsqrt, "float32"),
    ("aten.upsample_nearest2d", lambda x: functional.interpolate(x, scale_factor=2.0), "float32"),
    ("aten.sum", lambda x: x.sum(-1), "float32"),
    ("aten.cumsum", lambda x: x.cumsum(-1), "float32"),
    ("aten.linalg_vector_norm", lambda x: functional.normalize(x), "float32"),
    ("aten.norm", torch.ops.aten.norm.Scalar, "float32"),
    ("aten.norm", lambda x: torch.ops.aten.norm.ScalarOpt_dim(x, 2, [-1]), "float32"),
    ("aten.norm", lambda x: torch.ops.aten.norm.ScalarOpt_dim(x.float(), 2, [-1]), "float32"),
    ("aten._softmax", lambda x: x.softmax(-1), "float32"),
    ("aten.native_layer_norm", lambda x: functional.layer_norm(x, x.shape[-1:]), "float32"),
    ("aten.mse_loss", lambda x: functional.mse_loss(x, torch.zeros_like(x)), "float32"),
    ("aten.tanh", torch.tanh, "bfloat16"),
    ("aten.reflection_pad2d", lambda x: functional.pad(x, (1, 1, 1, 1), "reflect"), "bfloat16"),
    ("aten.addcmul", lambda x: torch.addcmul(x, x, x), "bfloat16"),
    ("aten.addcmul", lambda x: torch.addcmul(x.float(), x, x), "float32"),
]


@pytest.mark.parametrize("mode", ["training", "inference"])
@pytest.mark.parametrize(("name", "run", "dtype"), CASES)
def test_each_operation_is_in_the_type_that_a_card_has_it_in(
    name: str, run: Callable[[Tensor], Tensor], dtype: str, mode: str
) -> None:
    records, _ = recorded(run, 2, 3, 8, 8, mode=mode)
    found = types(records, name)
    assert found
    assert found[0] == dtype


def test_what_is_told_its_results_type_has_no_copy_of_its_numbers() -> None:
    records, _ = recorded(lambda x: x.sum(-1), 2, 8, mode="inference")
    assert [record.name for record in records] == ["aten.sum"]


def test_a_type_that_was_asked_for_stays() -> None:
    """So cross entropy does, which is why a card has its softmax in bf16, and what that gives is cast for the loss."""
    records, _ = recorded(lambda x: x.sum(-1, dtype=torch.bfloat16), 2, 8, mode="inference")
    assert types(records, "aten.sum") == ["bfloat16"]
    records, _ = recorded(lambda x: functional.cross_entropy(x, torch.zeros(2, dtype=torch.long)), 2, 8)
    assert types(records, "aten._log_softmax") == ["bfloat16"]
    assert types(records, "aten.nll_loss_forward") == ["float32"]


def test_gelu_by_a_power_is_kept_as_a_card_keeps_it() -> None:
    """GPT-2's: from the power on all is in fp32, by which a step keeps 14 bytes a number where it had been told 8."""

    def gelu(x: Tensor) -> Tensor:
        return 0.5 * x * (1.0 + torch.tanh(0.8 * (x + 0.044715 * torch.pow(x, 3.0))))

    records, _ = recorded(gelu, 4, 64)
    assert types(records, "aten.tanh") == ["float32"]
    assert types(records, "aten.mul")[:4] == ["bfloat16", "float32", "float32", "float32"]


def test_it_is_noticed_where_a_cpu_does_otherwise() -> None:
    for run, otherwise in ((torch.tanh, False), (torch.exp, True), (lambda x: torch.stack([x, x]), True)):
        assert bool(recorded(run, 2, 8)[1]) is otherwise


def test_a_cpu_s_own_autocast_comes_back_whatever_happens() -> None:
    def fail() -> None:
        with casts_of_device(lambda: None):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with torch.autocast("cpu", torch.bfloat16):
        narrow = torch.ones(2, 3, 4, 4, dtype=torch.bfloat16)
        assert narrow.exp().dtype is torch.bfloat16
        assert functional.pad(narrow, (1, 1, 1, 1), "reflect").dtype is torch.float32
