"""Heavy operations, whose cost follows their arithmetic: matrix products, convolutions, attention, recurrent layers.

A multiply-add is two flops (torch.utils.flop_counter's convention, which traces follow); bytes are those of every
tensor read or written once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from probes.microtrain.constants.bench import DTYPES, Action, Bench, Effort, element_bytes, random_tensor
from probes.workload.description import Plan

# Rows, depth, columns: one sample against a wide layer, narrow layers, tall ones, square ones. The quick set spans the
# same range with fewer points between.
MATMUL_QUICK = ((1, 512, 512), (16, 64, 64), (32, 784, 256), (256, 128, 512), (2048, 64, 64), (256, 1024, 256))
MATMUL_FULL = (*MATMUL_QUICK, (1, 64, 64), (8, 1024, 4096), (64, 256, 1024), (512, 512, 512), (4096, 256, 256))
MATMUL_LARGE = ((2048, 2048, 2048), (8192, 4096, 4096))  # devices only: seconds on a CPU


@dataclass(frozen=True, slots=True)
class ConvolutionShape:
    batch: int
    channels: int
    outputs: int
    side: int
    kernel: int
    stride: int = 1
    groups: int = 1

    @property
    def out_side(self) -> int:
        return (self.side + 2 * (self.kernel // 2) - self.kernel) // self.stride + 1

    @property
    def flops(self) -> float:
        taps = self.channels // self.groups * self.kernel**2
        return 2.0 * self.batch * self.outputs * self.out_side**2 * taps

    @property
    def elements(self) -> tuple[int, int, int]:
        """Of input, weight and output."""
        return (
            self.batch * self.channels * self.side**2,
            self.outputs * (self.channels // self.groups) * self.kernel**2,
            self.batch * self.outputs * self.out_side**2,
        )


CONVOLUTION_QUICK = (
    ConvolutionShape(8, 3, 16, 32, 3),  # the first layer of a small image network
    ConvolutionShape(4, 64, 64, 28, 3),  # the body of a residual network
    ConvolutionShape(8, 128, 64, 14, 1),  # pointwise
    ConvolutionShape(8, 64, 64, 14, 3, groups=64),  # depthwise
)
CONVOLUTION_FULL = (
    *CONVOLUTION_QUICK,
    ConvolutionShape(2, 3, 64, 112, 7, stride=2),
    ConvolutionShape(4, 256, 256, 14, 3),
    ConvolutionShape(16, 32, 64, 28, 3, stride=2),
)
# Batch, heads, length, width of a head.
ATTENTION_QUICK = ((4, 4, 64, 32), (1, 8, 256, 64))
ATTENTION_FULL = (*ATTENTION_QUICK, (8, 12, 128, 64), (2, 8, 512, 64))
# Batch, steps, width (in and hidden alike).
RECURRENT_QUICK = ((16, 32, 64),)
RECURRENT_FULL = (*RECURRENT_QUICK, (32, 64, 256))


def matmul(plan: Plan, effort: Effort) -> list[Bench]:
    """rows x depth times depth x columns, the second transposed as a linear layer's weight is."""
    shapes: Sequence[tuple[int, int, int]] = MATMUL_QUICK if effort == "quick" else MATMUL_FULL
    if not plan.is_cpu:
        shapes = (*shapes, *MATMUL_LARGE)
    return [_matmul_bench(plan, *shape) for shape in shapes]


def _matmul_bench(plan: Plan, rows: int, depth: int, columns: int) -> Bench:
    def make() -> Action:
        left, weight = random_tensor(plan, rows, depth), random_tensor(plan, columns, depth)
        return lambda: torch.mm(left, weight.t())

    moved = (rows * depth + depth * columns + rows * columns) * element_bytes(plan)
    parameters = {"m": float(rows), "k": float(depth), "n": float(columns)}
    return Bench("matmul", plan, parameters, make, 2.0 * rows * depth * columns, float(moved))


def convolution(plan: Plan, effort: Effort) -> list[Bench]:
    """Forward, and backward for input and weight in one operation, as autograd runs it (twice the flops)."""
    shapes = CONVOLUTION_QUICK if effort == "quick" else CONVOLUTION_FULL
    return [bench for shape in shapes for bench in (_forward_bench(plan, shape), _backward_bench(plan, shape))]


def _forward_bench(plan: Plan, shape: ConvolutionShape) -> Bench:
    def make() -> Action:
        image, weight = _image(plan, shape), _weight(plan, shape)
        padding = shape.kernel // 2
        return lambda: functional.conv2d(image, weight, None, shape.stride, padding, 1, shape.groups)

    moved = sum(shape.elements) * element_bytes(plan)
    return Bench("convolution", plan, _describe(shape, backward=False), make, shape.flops, float(moved))


def _backward_bench(plan: Plan, shape: ConvolutionShape) -> Bench:
    def make() -> Action:
        image, weight = _image(plan, shape), _weight(plan, shape)
        gradient = random_tensor(plan, shape.batch, shape.outputs, shape.out_side, shape.out_side)
        stride, padding = [shape.stride] * 2, [shape.kernel // 2] * 2
        wanted = [True, True, False]
        return lambda: torch.ops.aten.convolution_backward(
            gradient, image, weight, None, stride, padding, [1, 1], False, [0, 0], shape.groups, wanted
        )

    inputs, weights, outputs = shape.elements
    moved = (2 * inputs + 2 * weights + outputs) * element_bytes(plan)
    return Bench("convolution", plan, _describe(shape, backward=True), make, 2 * shape.flops, float(moved))


def _image(plan: Plan, shape: ConvolutionShape) -> torch.Tensor:
    return random_tensor(plan, shape.batch, shape.channels, shape.side, shape.side)


def _weight(plan: Plan, shape: ConvolutionShape) -> torch.Tensor:
    return random_tensor(plan, shape.outputs, shape.channels // shape.groups, shape.kernel, shape.kernel)


def _describe(shape: ConvolutionShape, *, backward: bool) -> dict[str, float]:
    return {
        "batch": shape.batch,
        "channels": shape.channels,
        "outputs": shape.outputs,
        "side": shape.side,
        "kernel": shape.kernel,
        "stride": shape.stride,
        "groups": shape.groups,
        "backward": float(backward),
    }


def attention(plan: Plan, effort: Effort) -> list[Bench]:
    """Scaled dot-product attention, forward: two matrix products and a softmax in one operation."""
    return [_attention_bench(plan, *shape) for shape in (ATTENTION_QUICK if effort == "quick" else ATTENTION_FULL)]


def _attention_bench(plan: Plan, batch: int, heads: int, length: int, width: int) -> Bench:
    def make() -> Action:
        query, key, value = (random_tensor(plan, batch, heads, length, width) for _ in range(3))
        return lambda: functional.scaled_dot_product_attention(query, key, value)

    flops = 4.0 * batch * heads * length * length * width
    moved = 4.0 * batch * heads * length * width * element_bytes(plan)
    parameters = {"batch": batch, "heads": heads, "length": length, "width": width}
    return Bench("attention", plan, dict(parameters), make, flops, moved)


def recurrent(plan: Plan, effort: Effort) -> list[Bench]:
    """One LSTM layer over a whole sequence, forward, without autograd."""
    return [_recurrent_bench(plan, *shape) for shape in (RECURRENT_QUICK if effort == "quick" else RECURRENT_FULL)]


def _recurrent_bench(plan: Plan, batch: int, steps: int, width: int) -> Bench:
    def make() -> Action:
        layer = nn.LSTM(width, width, batch_first=True).to(plan.device, DTYPES[plan.precision])
        layer.requires_grad_(False)
        sequence = random_tensor(plan, batch, steps, width)
        return lambda: layer(sequence)

    flops = 2.0 * batch * steps * 4 * width * 2 * width  # four gates, from the input and from the state
    moved = (2 * batch * steps * width + 8 * width * width) * element_bytes(plan)
    return Bench("recurrent", plan, {"batch": batch, "steps": steps, "width": width}, make, flops, float(moved))
