"""Of most of torch's kernels nobody knows whether they take memory inside: one trial says so, but for those few kinds
that are known to take none."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from probes.microtrain.kernel_memory import kernel_calls, scratch
from probes.microtrain.kernel_memory.kernel_calls import UNKNOWN_FACTOR, Call, Shape
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
MOVING: dict[str, Callable[[Tensor], object]] = {
    "paddings": lambda x: [
        functional.pad(x, (2, 3), mode=mode).square().sum().backward() for mode in ("reflect", "replicate")
    ],
    "paddings of images": lambda x: [
        functional.pad(x, (2, 3, 1, 2), mode=mode).square().sum().backward() for mode in ("reflect", "replicate")
    ],
    "paddings of volumes": lambda x: [
        functional.pad(x.unflatten(2, (6, 8)), (2, 3, 1, 2, 3, 1), mode=mode).square().sum().backward()
        for mode in ("reflect", "replicate")
    ],
    "turning": lambda x: x.flip(1).square().sum().backward(),
    "shuffles": lambda x: (
        functional.pixel_unshuffle(functional.pixel_shuffle(x.unflatten(1, (12, 4)), 2), 2).square().sum().backward()
    ),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_kernel_that_is_none_of_the_plain_ones_is_asked(name: str) -> None:
    assert name in {str(call.operation._overloadpacket) for call in calls(lambda: UNKNOWN[name](2))}


@pytest.mark.parametrize("name", PLAIN)
def test_what_a_plain_step_runs_is_not(name: str) -> None:
    assert calls(lambda: PLAIN[name](images(3))) == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", MOVING)
def test_nor_is_what_puts_an_images_numbers_elsewhere(
    name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which takes nothing where they lie in order."""
    x = images(3).to(dtype).requires_grad_()
    assert calls(lambda: MOVING[name](x)) == []
    kernel_calls._is_unknown.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(kernel_calls, "_MOVING", re.compile("^$"))
        asked = calls(lambda: MOVING[name](x))
    kernel_calls._is_unknown.cache_clear()
    assert asked
    assert [run_call(each).inside for each in asked] == [0] * len(asked)


def test_what_does_not_lie_in_order_is_copied_before() -> None:
    with Recorder() as recorder:
        x = functional.pad(images(3).mT, (2, 3, 1, 2), mode="reflect")
    (call,) = (each for each in recorder.calls if each is not None)
    assert call.copies
    assert run_call(call).inside == 4 * 3 * ROWS**2 < 4 * x.numel()


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


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes at which kernels ran, which took nothing."""
    sizes_tried: list[int] = []

    def try_at(sizes: tuple[int, int], one: Call, other: Call, size: int) -> Taken:
        sizes_tried.append(size)
        return Taken(0, 0, (), (), 0.001)

    monkeypatch.setattr(scratch, "try_at", try_at)
    return sizes_tried


def transforms(sample_bytes: int = 0) -> Inside:
    """sample_bytes: that one sample reads and writes; 0: as many as it does."""
    pair = []
    for count in (16, 32):
        (call,) = calls(lambda count=count: torch.fft.rfft2(images(count)))
        assert isinstance(call.arguments[0], Shape)
        large = call._replace(bound=UNKNOWN_FACTOR * sample_bytes * count, read_bytes=sample_bytes * count // 2)
        pair.append(large if sample_bytes else call)
    return Inside((16, 32), *pair)


def test_one_that_takes_nothing_is_tried_once(tried: list[int]) -> None:
    inside = transforms()
    assert [inside.at(size, Budget()) for size in (1, 64, 4096)] == [0.0, 0.0, 0.0]
    assert tried == [2]


@pytest.mark.parametrize(("share", "sizes"), [(0.4, [2]), (0.8, [1]), (1.2, [])])
def test_one_that_moves_much_takes_nothing_as_far_as_anybody_knows(
    tried: list[int], share: float, sizes: list[int]
) -> None:
    """It was told to take all that it reads, where its bound, which is eight times what it moves, was too large for a
    trial. What it moves says whether it can be tried at all, with one sample where two are too large."""
    inside = transforms(int(share * scratch.MAX_BYTES))
    assert [inside.at(size, Budget()) for size in (1, 64, 4096)] == [0.0, 0.0, 0.0]
    assert tried == sizes


def test_what_one_large_trial_took_is_taken_in_proportion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "try_at", lambda *_: Taken(10**6, 0, (), (), 0.001))
    inside = transforms(scratch.MAX_BYTES // 3)
    assert [inside.at(size, Budget()) for size in (2, 64)] == [10**6, pytest.approx(32 * 10**6)]


def test_what_computes_much_is_not_tried_on_much(tried: list[int]) -> None:
    """Nothing says how long it takes: a decomposition of four thousand rows a minute."""
    pair = (calls(lambda count=count: UNKNOWN["aten._linalg_svd"](count))[0] for count in (16, 32))
    large = [each._replace(bound=3 * scratch.MAX_BYTES * count) for each, count in zip(pair, (16, 32), strict=True)]
    assert Inside((16, 32), *large).at(1, Budget()) == 0.0
    assert tried == []
