"""How many numbers a pool's window has, as torch dispatches pools of every kind."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from probes.microtrain.traces.recording import Recorder

SIGNAL, IMAGE, VOLUME = (2, 3, 24), (2, 3, 24, 24), (2, 3, 12, 12, 12)


def windows(pool: Callable[[Tensor], Tensor], shape: tuple[int, ...]) -> dict[str, float]:
    """Of what the pool and its backward run, by name, where there is one."""
    inputs = torch.randn(shape, requires_grad=True)
    with Recorder() as recorder:
        pool(inputs).sum().backward()
    return {record.name.removeprefix("aten."): record.grain for record in recorder.records if record.grain}


@pytest.mark.parametrize(
    ("pool", "shape", "found"),
    [
        (lambda x: functional.max_pool1d(x, 3), SIGNAL, {"max_pool2d_with_indices": 3}),
        (lambda x: functional.max_pool2d(x, 3, 2, 1), IMAGE, {"max_pool2d_with_indices": 9}),
        (lambda x: functional.max_pool2d(x, (5, 2)), IMAGE, {"max_pool2d_with_indices": 10}),
        (lambda x: functional.max_pool3d(x, 2), VOLUME, {"max_pool3d_with_indices": 8}),
        (lambda x: functional.avg_pool2d(x, 4), IMAGE, {"avg_pool2d": 16, "avg_pool2d_backward": 16}),
        (lambda x: functional.avg_pool3d(x, (1, 2, 3)), VOLUME, {"avg_pool3d": 6, "avg_pool3d_backward": 6}),
        (lambda x: functional.relu(x), IMAGE, {}),
    ],
)
def test_a_window_has_the_product_of_its_sides(
    pool: Callable[[Tensor], Tensor], shape: tuple[int, ...], found: dict[str, float]
) -> None:
    assert windows(pool, shape) == found


def test_a_signal_s_mean_is_of_as_many_places_as_its_window() -> None:
    assert set(windows(lambda x: functional.avg_pool1d(x, 4), SIGNAL).values()) == {4}


def test_without_a_gradient_it_is_the_same() -> None:
    with Recorder() as recorder, torch.no_grad():
        functional.max_pool1d(torch.randn(SIGNAL), 3)
        functional.max_pool2d(torch.randn(IMAGE), 3)
    assert {record.grain for record in recorder.records if "max_pool" in record.name} == {3, 9}
