"""A step that is watched adds where the same step adds when nobody watches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile

from probes.microtrain.calibration.operation_clock import OperationClock
from probes.microtrain.traces.recording import Recorder
from probes.microtrain.traces.unwatched import _OVER, unheld

Loss = Callable[[torch.Tensor], torch.Tensor]


def scaled(gradient: torch.Tensor) -> torch.Tensor:
    return gradient * 2


class Doubled(torch.autograd.Function):
    """Its backward, written in Python, adds what it keeps."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        return tensor * 2

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        one = gradient.clone()
        two = one + gradient
        return two + one - one


class Net(nn.Module):
    """Of each kind of addition some: gradients of tensors used twice, biases of linear layers, a model's own sums."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.reader = nn.GRU(16, 16, batch_first=True)
        self.weight = nn.Parameter(torch.randn(16, 16))
        self.bias = nn.Parameter(torch.randn(16))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        tokens = self.encoder(tokens)
        read = self.reader(tokens)[0] + tokens
        own = read @ self.weight + self.bias
        kept = own + self.bias
        again = torch.utils.checkpoint.checkpoint(lambda t: t.sin() + t, kept, use_reentrant=False)
        picked = own.max(1).values.sum() + own[:, [0, 2]].sum() + own.gather(1, own.argsort(1)).sum()
        return (Doubled.apply(again) * again + own * kept + own).mean() + picked


def gradients(watch: Any = None) -> list[torch.Tensor]:
    torch.manual_seed(0)
    net, tokens = Net(), torch.randn(3, 5, 16, requires_grad=True)
    if watch is None:
        loss = net(tokens)
        loss.backward()
    else:
        with watch:
            loss = net(tokens)
            loss.backward()
    found = [loss.detach(), tokens.grad, *(parameter.grad for parameter in net.parameters())]
    return [each for each in found if each is not None]


# By torch's profiler; index_put_ is a shell around another that autograd calls itself.
NAMES = {
    name: name.replace("_index_put_impl_", "index_put_")
    for kind in ("add", "scatter_add", "scatter", "index_add", "masked_scatter", "_index_put_impl")
    for name in (f"aten::{kind}", f"aten::{kind}_")
}


def additions(action: Callable[[], object]) -> Counter[str]:
    """As torch's profiler sees them where no mode watches."""
    with profile(activities=[ProfilerActivity.CPU]) as watched:
        action()
    own = (each for each in watched.events() if each.cpu_parent is None or each.cpu_parent.name not in NAMES)
    return Counter(NAMES[each.name] for each in own if each.name in NAMES)


def recorded(action: Callable[[], object]) -> Counter[str]:
    with Recorder() as recorder:
        action()
    names = (record.name.replace("aten.", "aten::") for record in recorder.records)
    return Counter(name for name in names if name in NAMES.values() or name == "aten::index_put")


def backward(loss: Loss) -> Callable[[], object]:
    def step() -> None:
        leaf = torch.linspace(0.1, 1.0, 12).reshape(3, 4).requires_grad_()
        loss(leaf * 2).backward()

    return step


LOSSES: dict[str, Loss] = {
    "two": lambda y: (y.sin() * y.cos()).sum(),
    "five": lambda y: torch.stack([y.sin(), y.cos(), y.exp(), y.tanh(), y.sigmoid()]).sum(),
    "residual": lambda y: ((y + y.sin()) * 3).sum(),
    "twice residual": lambda y: ((y + (y + y.sin()) * 2).exp() * 3).sum(),
    "squared": lambda y: (y * y * y).sum(),
    "parts": lambda y: (y[0] * y[1] * y[2]).sum(),
    "turned": lambda y: (y.t().exp() * y.t().sin()).sum(),
    "spread": lambda y: (y[:1].expand(3, 4) * y).sum(),
    "one sum for two": lambda y: y.sum() + y.sum() * 2,
    "largest": lambda y: (y.max(1).values * 2).sum(),
    "largest few": lambda y: (y.topk(2, dim=1).values * 2).sum(),
    "gathered": lambda y: (y.gather(1, torch.zeros(3, 2, dtype=torch.int64)) * 2).sum(),
    "selected": lambda y: (y.index_select(0, torch.zeros(5, dtype=torch.int64)) * 2).sum(),
    "indexed": lambda y: (y[torch.zeros(5, dtype=torch.int64)] * 2).sum(),
    "masked": lambda y: (y.masked_select(torch.ones(4, dtype=torch.bool)) * 2).sum(),
    "spread and mean": lambda y: torch.stack(torch.var_mean(y, 1)).sum(),
    "reduced": lambda y: y.scatter_reduce(1, torch.zeros(3, 4, dtype=torch.int64), y * 2, "amax").sum(),
    "running sum": lambda y: (y.logcumsumexp(1) * 2).sum(),
    "solved": lambda y: (torch.linalg.qr(y.t()).R * 2).sum(),
    "differences": lambda y: sum((each * each).sum() for each in torch.gradient(y.reshape(3, 2, 2), dim=1, spacing=2)),
    "products": lambda y: ((y @ y.t()) @ y).sum(),
}


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_are_added_where_the_engine_adds_them(name: str) -> None:
    step = backward(LOSSES[name])
    assert recorded(step) == additions(step)


def test_fake_tensors_are_held_like_real_ones() -> None:
    for name, loss in LOSSES.items():
        step = backward(loss)
        if name == "masked":  # how many that selects no fake tensor knows
            continue
        with FakeTensorMode():
            found = recorded(step)
        assert found == additions(step), name


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_biases_are_added_into_the_product(bias: bool, train: bool) -> None:
    layer, turned = nn.Linear(4, 6, bias=bias), torch.ones(3, 5, 4).transpose(0, 1)

    def step() -> None:
        with torch.set_grad_enabled(train):
            layer(turned)

    assert recorded(step) == additions(step) == ({"aten::add_": 1} if bias else {})


ATTENTION: dict[str, dict[str, Any]] = {
    "mask": {"attn_mask": torch.zeros(5, 5)},
    "of each sample": {"attn_mask": torch.zeros(3, 1, 5, 5)},
    "of keys": {"attn_mask": torch.zeros(3, 1, 1, 5)},
    "booleans": {"attn_mask": torch.ones(5, 5, dtype=torch.bool)},
    "causal": {"is_causal": True},
    "none": {},
}


@pytest.mark.parametrize("fake", [False, True])
@pytest.mark.parametrize("mode", ["train", "no_grad", "inference"])
@pytest.mark.parametrize("name", ATTENTION)
def test_masks_are_added_into_the_scores(name: str, mode: str, fake: bool) -> None:
    guard = {"train": torch.enable_grad, "no_grad": torch.no_grad, "inference": torch.inference_mode}[mode]
    given = ATTENTION[name]

    def step() -> None:
        made = {key: value.clone() if isinstance(value, torch.Tensor) else value for key, value in given.items()}
        with guard():
            leaf = torch.ones(3, 2, 5, 4, requires_grad=mode == "train")
            # Dropout keeps it from the kernels that compute the whole.
            result = nn.functional.scaled_dot_product_attention(leaf, leaf * 2, leaf * 3, dropout_p=0.1, **made)
            if mode == "train":
                result.sum().backward()

    with FakeTensorMode(allow_non_fake_inputs=True) if fake else nullcontext():
        found = recorded(step)
    assert found == additions(step)
    assert found["aten::add"] == 0


@pytest.mark.parametrize("grad", [False, True])
def test_masks_that_python_adds_stay_beside_the_scores(grad: bool) -> None:
    mask = torch.zeros(5, 5)

    def step() -> None:
        heads = torch.ones(3, 2, 5, 4, requires_grad=grad)
        scores = heads @ heads.transpose(-1, -2)
        scores = scores + mask
        _ = (heads @ heads.transpose(-1, -2) + mask).softmax(-1)
        _ = torch.add(scores * 2, scores)
        _ = (scores * 2).add(mask)

    assert recorded(step) == additions(step) == {"aten::add": 4}


def test_sums_that_python_writes_stay_sums() -> None:
    product, bias = torch.ones(2, 3, 4), torch.arange(4.0)

    def step() -> None:
        for grad in (True, False):
            with torch.set_grad_enabled(grad):
                kept = product * 2
                assert torch.equal(kept + bias, 2 + bias.expand(2, 3, 4))
                assert torch.equal(kept, product * 2)
                _ = product * 2 + bias
                _ = torch.add(product * 2, bias)
                _ = (product * 2).add(bias)

    assert recorded(step) == additions(step) == {"aten::add": 10}


@pytest.mark.parametrize("watch", [OperationClock, Recorder])
def test_a_step_learns_the_same_watched_or_not(watch: Callable[[], Any]) -> None:
    for one, other in zip(gradients(), gradients(watch()), strict=True):
        assert torch.equal(one, other)


def test_this_torch_tells_who_holds_a_tensor() -> None:
    """Else memory and time are told with a tensor too many."""
    assert set(unheld()) == set(_OVER)


def test_who_holds_a_tensor_is_known_where_attention_was_left_to_one_kernel() -> None:
    """As a model's author may have, before the first recorder is made."""
    unheld.cache_clear()
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        assert set(unheld()) == set(_OVER)


def test_asking_draws_no_random_numbers() -> None:
    before = torch.get_rng_state()
    unheld.cache_clear()
    unheld()
    assert torch.equal(torch.get_rng_state(), before)
