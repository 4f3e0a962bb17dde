"""Of most of torch's kernels nobody knows whether they take memory inside: one trial says so, but for those few kinds
that are known to take none."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from probes.microtrain.kernel_memory import scratch
from probes.microtrain.kernel_memory.kernel_calls import Call, Shape
from probes.microtrain.kernel_memory.kernel_trials import Taken, run_call
from probes.microtrain.kernel_memory.scratch import Budget, Inside
from probes.microtrain.traces.recording import Recorder
from tests.probes.microtrain.kernel_memory.enough_time import give_time

ROWS = 48


def calls(run: Callable[[], object]) -> list[Call]:
    with Recorder() as recorder:
        run()
    return [call for call in recorder.calls if call is not None and call.unknown]


def images(count: int) -> Tensor:
    return torch.randn(count, ROWS, ROWS)


UNKNOWN: dict[str, Callable[[int], object]] = {
    "aten._fft_c2r": lambda count: torch.fft.irfft2(images(count) + 0j),
    "aten._euclidean_dist": lambda count: torch.cdist(images(count), images(count)),
    "aten.linalg_inv_ex": lambda count: torch.linalg.inv_ex(images(count)),
    "aten._linalg_svd": lambda count: torch.linalg.svd(images(count)),
    "aten.linalg_matrix_exp": lambda count: torch.linalg.matrix_exp(images(count)),
    "aten.affine_grid_generator": lambda count: functional.affine_grid(
        torch.randn(count, 2, 3), [count, 1, ROWS, ROWS], False
    ),
    "aten.multinomial": lambda count: torch.multinomial(images(count)[0].exp(), 3),
}
PLAIN: dict[str, Callable[[Tensor], object]] = {
    "activations": lambda x: [each(x) for each in (functional.gelu, functional.hardswish, functional.glu, torch.tanh)],
    "their gradients": lambda x: functional.leaky_relu(functional.elu(x.requires_grad_())).sum().backward(),
    "numbers": lambda x: torch.where(x > 0, x * 2, x.exp()).add_(1).masked_fill_(x > 1, 0.0).clamp(0),
    "copies": lambda x: torch.cat([x.clone(), x.mT.contiguous(), torch.zeros_like(x)]),
    "products": lambda x: (x @ x, x[0] @ x[1], x[0] @ x[1, 0]),
    "pieces": lambda x: (x.unsafe_chunk(2), x.split(1), x.mT, x.unsqueeze_(0)),
    "chance": lambda x: (functional.dropout(x), torch.rand_like(x)),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_kernel_that_is_none_of_the_plain_ones_is_asked(name: str) -> None:
    assert name in {str(call.operation._overloadpacket) for call in calls(lambda: UNKNOWN[name](2))}


@pytest.mark.parametrize("name", PLAIN)
def test_what_a_plain_step_runs_is_not(name: str) -> None:
    assert calls(lambda: PLAIN[name](images(3))) == []


@pytest.mark.parametrize("name", ["aten._fft_c2r", "aten._euclidean_dist", "aten.linalg_inv_ex"])
def test_what_it_takes_is_what_a_kernel_of_that_batch_takes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    give_time(monkeypatch.setattr)
    one, other, large = (
        next(call for call in calls(lambda count=count: UNKNOWN[name](count)) if name in str(call.operation))
        for count in (16, 32, 100)
    )
    inside = Inside((16, 32), one, other)
    taken = run_call(large).inside
    assert taken > 0
    assert inside.at(100, Budget()) == pytest.approx(taken, rel=0.01)
    assert one.bound >= run_call(one).inside


def test_a_matrix_exponential_is_not_tried_on_zeros() -> None:
    """Of which none of its products is made."""
    (call,) = calls(lambda: UNKNOWN["aten.linalg_matrix_exp"](2))
    assert run_call(call).inside > 4 * 2 * 4 * ROWS**2


def test_one_that_takes_nothing_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    def try_at(sizes: tuple[int, int], one: Call, other: Call, size: int) -> Taken:
        tried.append(size)
        return Taken(0, 0, (), (), 0.001)

    monkeypatch.setattr(scratch, "try_at", try_at)
    one, other = (calls(lambda count=count: torch.fft.rfft2(images(count)))[0] for count in (16, 32))
    assert isinstance(one.arguments[0], Shape)
    inside = Inside((16, 32), one, other)
    assert [inside.at(size, Budget()) for size in (1, 64, 4096)] == [0.0, 0.0, 0.0]
    assert tried == [2]
