"""What a kernel takes inside on this machine, whatever processor that is, is no more than it is said to take at most:
by that bound it is decided which are tried at all."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import flop_registry

from probes.microtrain.kernel_memory.kernel_calls import Call, call_of
from probes.microtrain.kernel_memory.kernel_trials import _thaw, measure_call
from probes.microtrain.traces.merging import affine
from probes.microtrain.traces.operation_costs import tensors_in
from probes.microtrain.traces.operation_kinds import kind_of
from probes.microtrain.traces.recording import Recorder

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


PLACES = 96
MASK = torch.ones(PLACES, PLACES, dtype=torch.bool).triu(1)


def whole_layer(layer: nn.Module, *args: torch.Tensor, **options: Any) -> Call:
    with torch.inference_mode(), Recorder() as recorder:
        layer.eval()(*args, **options)
    (found,) = (each for each in recorder.calls if each is not None and each.made)
    return found


@pytest.mark.parametrize("features", [16, 2000], ids=["scores", "feedforward"])
@pytest.mark.parametrize("masks", [{}, {"src_mask": MASK}], ids=["unmasked", "causal"])
def test_a_whole_layer_makes_inside_what_its_shapes_say(features: int, masks: dict[str, torch.Tensor]) -> None:
    """The scores of many heads are more than three times what it reads and writes, which was the bound: 120 samples of
    256 words were told 28 % too small, and a batch that does not fit was said to."""
    layer = nn.TransformerEncoderLayer(32, 8, features, batch_first=True)
    call = whole_layer(layer, torch.randn(2, PLACES, 32), **masks)
    inside = measure_call(call).inside
    assert call.bound >= inside
    assert call.made == pytest.approx(inside, rel=0.02)


def test_attention_that_runs_whole_makes_inside_what_its_shapes_say() -> None:
    attention, words = nn.MultiheadAttention(32, 8, batch_first=True), torch.randn(2, PLACES, 32)
    call = whole_layer(attention, words, words, words, need_weights=False)
    inside = measure_call(call).inside
    assert call.bound >= inside
    assert call.made == pytest.approx(inside, rel=0.02)


def test_what_is_expanded_is_tried_expanded() -> None:
    """A mask stands once for all samples and heads; with one of its own for each, a trial took up to 9 % too much."""
    layer = nn.TransformerEncoderLayer(32, 8, 16, batch_first=True)
    call = whole_layer(layer, torch.randn(2, PLACES, 32), src_mask=MASK)
    (mask,) = (each for each in _thaw(call.arguments) if torch.is_tensor(each) and each.dim() == 4)
    assert mask.shape == (2, 8, PLACES, PLACES)
    assert mask.stride() == (0, 0, PLACES, 1)


@pytest.mark.parametrize("norm_first", [False, True])
def test_a_whole_layer_of_few_words_makes_what_its_queries_keys_and_values_take(*, norm_first: bool) -> None:
    layer = nn.TransformerEncoderLayer(256, 4, 64, batch_first=True, norm_first=norm_first)
    call = whole_layer(layer, torch.randn(2, 8, 256))
    assert call.made == pytest.approx(measure_call(call).inside, rel=0.02)
