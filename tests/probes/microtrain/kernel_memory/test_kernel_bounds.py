"""What a kernel takes inside on this machine, whatever processor that is, is no more than it is said to take at most:
by that bound it is decided which are tried at all."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import flop_registry

from probes.microtrain.kernel_memory.kernel_calls import Call, call_of
from probes.microtrain.kernel_memory.kernel_trials import measure_call
from probes.microtrain.traces.merging import affine
from probes.microtrain.traces.operation_costs import tensors_in
from probes.microtrain.traces.operation_kinds import kind_of

aten = torch.ops.aten
DTYPES = (torch.float32, torch.bfloat16)


def call(operation: Any, dtype: torch.dtype, *args: Any) -> Call:
    made = operation(*args)
    written = sum(t.numel() * t.itemsize for t in tensors_in(made if isinstance(made, tuple | list) else [made]))
    read = sum(t.numel() * t.itemsize for t in tensors_in(args))
    flops = flop_registry[operation.overloadpacket](*args, out_val=made)
    found = call_of(operation, kind_of(operation), str(dtype).removeprefix("torch."), args, {}, (flops, read, written))
    assert found is not None
    return found


@pytest.mark.parametrize("rows", [1, 2, 32])
@pytest.mark.parametrize("outputs", [2, 16, 48, 130])
@pytest.mark.parametrize("inputs", [10, 1000, 20_000])
def test_a_product_in_bf16_takes_no_more_than_its_bound(inputs: int, outputs: int, rows: int) -> None:
    """oneDNN's tiles on Intel AMX made 64 times a weight of two outputs, of which three times was the bound: that one
    was never tried, and a network of 4 MB was told to take one."""
    dtype = torch.bfloat16
    bias, images, weight = (
        torch.zeros(*sizes, dtype=dtype) for sizes in ((outputs,), (rows, inputs), (outputs, inputs))
    )
    of_product = call(aten.addmm.default, dtype, bias, images, weight.t())
    assert measure_call(of_product).inside <= of_product.bound


def test_few_outputs_are_bounded_by_tiles() -> None:
    """On any processor: which one will be asked nobody knows."""
    bias, images, weight = (torch.zeros(*sizes, dtype=torch.bfloat16) for sizes in ((2,), (1, 20_000), (2, 20_000)))
    assert call(aten.addmm.default, torch.bfloat16, bias, images, weight.t()).bound > 64 * weight.numel() * 2


def test_a_bound_grows_with_the_batch() -> None:
    """It is known at two batch sizes, both of which fill one tile."""
    weight, bias = torch.zeros(2, 4096, dtype=torch.bfloat16), torch.zeros(2, dtype=torch.bfloat16)
    few, more, many = (
        call(aten.addmm.default, torch.bfloat16, bias, torch.zeros(rows, 4096, dtype=torch.bfloat16), weight.t())
        for rows in (16, 32, 8192)
    )
    assert affine((16, 32), (few.bound, more.bound)).at(8192) >= 2 * many.read_bytes


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize(
    "channels", [(3, 4, 1), (8, 8, 1), (24, 24, 1), (16, 96, 1), (32, 32, 32), (16, 16, 2), (130, 130, 1)]
)
def test_a_convolution_takes_no_more_than_its_bound(
    channels: tuple[int, int, int], dimensions: int, dtype: torch.dtype
) -> None:
    inputs, outputs, groups = channels
    images = torch.zeros(1, inputs, *[8] * dimensions, dtype=dtype)
    weight = torch.zeros(outputs, inputs // groups, *[3] * dimensions, dtype=dtype)
    ones, zeros = [1] * dimensions, [0] * dimensions
    way = (ones, ones, ones, False, zeros, groups)
    forward = call(aten.convolution.default, dtype, images, weight, torch.zeros(outputs, dtype=dtype), *way)
    results = torch.zeros(1, outputs, *[8] * dimensions, dtype=dtype)
    backward = call(
        aten.convolution_backward.default, dtype, results, images, weight, [outputs], *way, [True, True, True]
    )
    for each in (forward, backward):
        assert measure_call(each).inside <= each.bound
