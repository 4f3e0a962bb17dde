"""A step on fake tensors is refused where the same step with numbers is, for the types of its operands, and in the same
words: in fp32 and under autocast."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional

from probes.microtrain.traces import refused_types
from probes.microtrain.traces.recording import Recorder
from probes.microtrain.traces.refused_types import check_types


def f(*shape: int) -> torch.Tensor:
    return torch.full(shape, 0.5)


def h(*shape: int) -> torch.Tensor:
    return f(*shape).bfloat16()


def d(*shape: int) -> torch.Tensor:
    return f(*shape).double()


def c(*shape: int) -> torch.Tensor:
    return torch.ones(shape, dtype=torch.cfloat)


def i(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.long)


def narrow(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.int32)


def put(into: torch.Tensor, values: torch.Tensor, index: torch.Tensor | None = None) -> torch.Tensor:
    into[i(2) if index is None else index] = values
    return into


class Saving(torch.autograd.Function):
    """Without what torch.amp has for these: its backward meets both types."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        context.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        x, weight = context.saved_tensors
        return gradients[0].mm(weight.t()), x.t().mm(gradients[0])


def own_function() -> None:
    Saving.apply(f(4, 4).requires_grad_(), f(4, 4).requires_grad_()).float().sum().backward()


CASES: dict[str, Callable[[], Any]] = {
    "linear": lambda: functional.linear(f(4, 4), f(3, 4), f(3)),
    "linear of two types": lambda: functional.linear(f(4, 4), h(3, 4)),
    "linear in double": lambda: functional.linear(d(4, 4), f(3, 4), f(3)),
    "linear of sequences in double": lambda: functional.linear(d(2, 4, 4), f(3, 4), f(3)),
    "linear of whole numbers": lambda: functional.linear(i(4, 4), f(3, 4), f(3)),
    "addmm of two types": lambda: torch.addmm(h(4), f(4, 4), f(4, 4)),
    "mm of two types": lambda: f(4, 4).mm(h(4, 4)),
    "mm of complex": lambda: c(4, 4).mm(f(4, 4)),
    "matmul with whole numbers": lambda: f(4, 4) @ i(4, 4),
    "mv of two types": lambda: torch.mv(f(4, 4), h(4)),
    "bmm of two types": lambda: torch.bmm(f(2, 4, 4), h(2, 4, 4)),
    "message passing": lambda: f(4, 4).index_add(0, i(2), f(2, 4) @ f(4, 4)),
    "message passing in place": lambda: f(4, 4).index_add_(0, i(2), f(2, 4) @ f(4, 4), alpha=2),
    "scatter_add": lambda: f(4, 4).scatter_add(0, i(2, 4), f(2, 4) @ f(4, 4)),
    "setting rows": lambda: put(f(4, 4), f(2, 4) @ f(4, 4)),
    "setting rows to one number": lambda: put(f(4, 4), h(4, 4)[0, 0]),
    "setting by a mask": lambda: put(f(4, 4), h(1), f(4, 4) > 0),
    "classes": lambda: functional.cross_entropy(f(4, 4), i(4)),
    "classes with weights": lambda: functional.cross_entropy(f(4, 4), i(4), weight=f(4)),
    "narrow classes": lambda: functional.cross_entropy(f(4, 4), narrow(4)),
    "narrow classes of places": lambda: functional.cross_entropy(f(4, 4, 2, 2), narrow(4, 2, 2)),
    "classes with a point": lambda: functional.nll_loss(f(4, 4), f(4)),
    "two types of truth": lambda: functional.binary_cross_entropy(f(4), h(4)),
    "logits and whole numbers": lambda: functional.binary_cross_entropy_with_logits(f(4), i(4)),
    "distances of two types": lambda: torch.cdist(f(4, 4), h(4, 4)),
    "distances in bf16": lambda: torch.cdist(h(4, 4), h(4, 4)),
    "distances of all in bf16": lambda: functional.pdist(h(4, 4)),
    "sampling by another type": lambda: functional.grid_sample(f(1, 1, 4, 4), h(1, 4, 4, 2), align_corners=False),
    "sampling a volume": lambda: functional.grid_sample(f(1, 1, 4, 4, 4), h(1, 4, 4, 4, 3), align_corners=False),
    "singular values in bf16": lambda: torch.linalg.svd(h(4, 4)),
    "softmax of whole numbers": lambda: i(4).softmax(0),
    "log_softmax of whole numbers": lambda: i(4).log_softmax(0),
    "argmax of truths": lambda: (f(4) > 0).argmax(),
    "relu of complex": lambda: functional.relu(c(4)),
    "gelu of complex": lambda: functional.gelu(c(4)),
    "max of complex": lambda: c(4).max(),
    "mse of complex": lambda: functional.mse_loss(c(4), c(4)),
    "complex into real": lambda: f(4).add_(c(4)),
    "a point into whole numbers": lambda: i(4).add_(f(4)),
    "whole numbers into others": lambda: f(4).mul_(i(4)),
    "wider into narrower": lambda: h(4).add_(f(4)),
    "convolution of two types": lambda: functional.conv2d(f(1, 3, 8, 8), h(4, 3, 3, 3)),
    "layer norm of two types": lambda: functional.layer_norm(h(4, 4), (4,), f(4), f(4)),
    "one's own function": own_function,
}


# Here torch's own stand-ins refuse, in words of their own.
BY_STAND_INS = {"bmm of two types", "convolution of two types", "logits and whole numbers"}


def said(run: Callable[[], Any], casting: AbstractContextManager[Any], watched: AbstractContextManager[Any]) -> str:
    """What torch refuses it with; empty where it does not."""
    try:
        with watched, casting:
            run()
    except RuntimeError as error:
        return str(error).splitlines()[0]
    return ""


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", CASES)
def test_what_a_step_with_numbers_is_refused_for_one_without_is(name: str, precision: str) -> None:
    def casting() -> AbstractContextManager[Any]:
        return nullcontext() if precision == "fp32" else torch.autocast("cpu", torch.bfloat16)

    real = said(CASES[name], casting(), nullcontext())
    with FakeTensorMode():
        fake = said(CASES[name], casting(), Recorder())
    assert bool(fake) == bool(real)
    assert fake == real or name in BY_STAND_INS


@pytest.mark.parametrize("numbers", [(2, 2.0), (2.0, 2)])
def test_a_number_is_asked_about_by_its_type(numbers: tuple[float, float]) -> None:
    """2 and 2.0 are equal, and whole numbers take only one of them where they are."""
    refused_types._refusal.cache_clear()
    counter = torch.zeros(3, dtype=torch.long)
    for number in numbers:
        with pytest.raises(RuntimeError) if isinstance(number, float) else nullcontext():
            check_types(torch.ops.aten.mul_.Tensor, (counter, number), {})
