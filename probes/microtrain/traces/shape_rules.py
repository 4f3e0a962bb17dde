"""What operations give that torch's own stand-ins work out by following their parts in Python: 3 to 9 ms for each new
shape (a ResNet, an EfficientNet; two cores of an EPYC, Zen 4). Here by the CPU kernels' rules."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from operator import mul
from typing import Any

import torch
from torch._ops import OpOverload

aten = torch.ops.aten

Rule = Callable[..., Any]


def _batch_norm(
    images: torch.Tensor,
    weight: torch.Tensor | None,
    _bias: torch.Tensor | None,
    mean: torch.Tensor | None,
    _variance: torch.Tensor | None,
    training: bool,
    *_: float,
) -> Any:
    """The statistics that it keeps are of the parameters' type: fp32 of bf16 images, where torch's stand-in says bf16
    (aten/src/ATen/native/Normalization.cpp)."""
    if not _is_dense(images):
        return None
    of = next((tensor for tensor in (weight, mean) if tensor is not None), images)
    kept = [of.new_empty(images.shape[1] if training else 0) for _ in range(2)]
    return torch.empty_like(images), *kept


def _batch_norm_backward(gradient: torch.Tensor, images: torch.Tensor, weight: torch.Tensor | None, *rest: Any) -> Any:
    """rest: means, variances, what was kept (twice), training, epsilon, which gradients are wanted."""
    wanted = rest[-1]
    if not (_is_dense(images) and images.stride() == gradient.stride() and weight is not None and all(wanted)):
        return None
    return torch.empty_like(images), torch.empty_like(weight), torch.empty_like(weight)


def _group_norm(images: torch.Tensor, weight: torch.Tensor | None, _bias: Any, *sizes: Any) -> Any:
    """As with a batch norm. sizes: samples, channels, places, groups, epsilon (aten/src/ATen/native/group_norm.cpp)."""
    if weight is None or not _is_dense(images):
        return None
    kept = [weight.new_empty(sizes[0], sizes[3]) for _ in range(2)]
    return torch.empty_like(images), *kept


def _group_norm_backward(gradient: torch.Tensor, images: torch.Tensor, *rest: Any) -> Any:
    """rest: means, deviations, weight, sizes as above, which gradients are wanted."""
    weight, wanted = rest[2], rest[-1]
    if not (_is_dense(images) and images.stride() == gradient.stride() and weight is not None and all(wanted)):
        return None
    return torch.empty_like(images), torch.empty_like(weight), torch.empty_like(weight)


def _layer_norm(
    of: torch.Tensor, shape: Sequence[int], weight: torch.Tensor | None, bias: torch.Tensor | None, _: float
) -> Any:
    """As with a batch norm (aten/src/ATen/native/layer_norm.cpp). Unlike the others' sizes nobody but the kernel looks
    at its: where they are wrong, torch says what is wrong with them."""
    if weight is None or not shape or not of.is_contiguous():
        return None
    sizes = (of.shape[-len(shape) :], weight.shape, weight.shape if bias is None else bias.shape)
    if any(each != torch.Size(shape) for each in sizes):
        return None
    places = (*of.shape[: of.dim() - len(shape)], *(1 for _ in shape))
    return torch.empty_like(of), weight.new_empty(places), weight.new_empty(places)


def _layer_norm_backward(gradient: torch.Tensor, of: torch.Tensor, *rest: Any) -> Any:
    """rest: the shape, means, deviations, weight, bias, which gradients are wanted."""
    weight, bias, wanted = rest[3:]
    known = of.is_contiguous() and gradient.is_contiguous() and all(wanted)
    if not known or weight is None or bias is None:
        return None
    return torch.empty_like(of), torch.empty_like(weight), torch.empty_like(bias)


def _product_with_bias(bias: torch.Tensor, left: torch.Tensor, right: torch.Tensor, **_: Any) -> Any:
    """Of a bias for each column, as layers have it."""
    fits = left.dim() == right.dim() == 2 and left.shape[1] == right.shape[0] and bias.shape == right.shape[1:]
    return left.new_empty(left.shape[0], right.shape[1]) if fits and bias.dtype == left.dtype == right.dtype else None


def _elementwise(of: torch.Tensor, *_: Any) -> Any:
    return torch.empty_like(of) if _is_dense(of) and of.is_floating_point() else None


def _elementwise_backward(gradient: torch.Tensor, of: torch.Tensor, *_: Any, **_options: Any) -> Any:
    alike = gradient.shape == of.shape and gradient.stride() == of.stride() and gradient.dtype == of.dtype
    return torch.empty_like(of) if alike and _is_dense(of) else None


def _view(of: torch.Tensor, shape: Sequence[int]) -> Any:
    """Of what lies in order: the same numbers in order."""
    known, all_known = math.prod(size for size in shape if size != -1), -1 not in shape
    if not of.is_contiguous() or not of.numel() or not known or of.numel() % known:
        return None
    if all_known and of.numel() != known:
        return None  # torch says what is wrong with it
    sizes = [of.numel() // known if size == -1 else size for size in shape]
    strides = list(accumulate(reversed(sizes[1:]), mul, initial=1))[::-1]
    return aten.as_strided.default(of, sizes, strides[: len(sizes)])


def _is_dense(tensor: torch.Tensor) -> bool:
    """In one of the two orders that every kernel keeps."""
    last = tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last)
    return tensor.is_contiguous() or last


# Each is called with the operation's arguments. It gives None where it does not know.
RULES: Mapping[OpOverload, Rule] = {
    aten.view.default: _view,
    aten._unsafe_view.default: _view,
    aten.native_batch_norm.default: _batch_norm,
    aten.native_batch_norm_backward.default: _batch_norm_backward,
    aten.native_group_norm.default: _group_norm,
    aten.native_group_norm_backward.default: _group_norm_backward,
    aten.native_layer_norm.default: _layer_norm,
    aten.native_layer_norm_backward.default: _layer_norm_backward,
    aten.addmm.default: _product_with_bias,
    aten.hardtanh.default: _elementwise,
    aten.gelu_backward.default: _elementwise_backward,
    aten.hardsigmoid_backward.default: _elementwise_backward,
    aten.hardswish_backward.default: _elementwise_backward,
    aten.hardtanh_backward.default: _elementwise_backward,
    aten.sigmoid_backward.default: _elementwise_backward,
    aten.silu_backward.default: _elementwise_backward,
    aten.tanh_backward.default: _elementwise_backward,
    aten.threshold_backward.default: _elementwise_backward,
}
