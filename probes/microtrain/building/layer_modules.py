"""Checked layers -> torch modules. Every size is spelled out in the content already (probes.workload.layers)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


class Reshape(nn.Module):
    """Keeps the batch, gives each sample another shape."""

    def __init__(self, shape: list[int]) -> None:
        super().__init__()
        self.shape = tuple(shape)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(x.shape[0], *self.shape)


class Permute(nn.Module):
    """dims: per-sample axes from 1; the batch stays first."""

    def __init__(self, dims: list[int]) -> None:
        super().__init__()
        self.dims = (0, *dims)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.permute(self.dims)


class Reduce(nn.Module):
    """Mean or maximum over axes."""

    def __init__(self, how: str, dims: int | None = None) -> None:
        super().__init__()
        self.how, self.dims = how, dims

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        axes = tuple(range(2, x.dim())) if self.dims is None else (self.dims,)
        return x.mean(axes) if self.how == "mean" else x.amax(axes)


class PositionEmbedding(nn.Module):
    """A learned vector for each position, added."""

    def __init__(self, steps: int, features: int) -> None:
        super().__init__()
        self.positions = nn.Parameter(torch.empty(steps, features).normal_(std=0.02))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.positions


class Recurrent(nn.Module):
    """A recurrent layer that gives its sequence, or its last step: of a bidirectional layer both directions' ends."""

    def __init__(self, cell: nn.RNNBase, *, last: bool) -> None:
        super().__init__()
        self.cell, self.last = cell, last

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        sequence, state = self.cell(x)
        if not self.last:
            return sequence
        hidden = state[0] if isinstance(state, tuple) else state
        return torch.cat((hidden[-2], hidden[-1]), dim=-1) if self.cell.bidirectional else hidden[-1]


class SelfAttention(nn.Module):
    """nn.MultiheadAttention of a sequence with itself; attention weights are not asked for."""

    def __init__(self, features: int, heads: int, dropout: float, *, bias: bool) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(features, heads, dropout=dropout, bias=bias, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attention(x, x, x, need_weights=False)[0]


class Residual(nn.Module):
    """Adds the input to what the layers make of it."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.inner(x)


def build_layers(layers: list[dict[str, Any]]) -> nn.Sequential:
    """layers: the canonical content of probes.workload.layers."""
    return nn.Sequential(*(_build(layer) for layer in layers))


def _build(layer: dict[str, Any]) -> nn.Module:
    options = {key: value for key, value in layer.items() if key != "type"}
    return BUILDERS[layer["type"]](**options)


def _recurrent(kind: type[nn.RNNBase]) -> Callable[..., nn.Module]:
    def build(hidden: int, output: str, **options: Any) -> nn.Module:
        stacked = options["num_layers"] > 1
        options["dropout"] = options["dropout"] if stacked else 0.0  # torch warns that it would do nothing
        return Recurrent(kind(options.pop("in"), hidden, batch_first=True, **options), last=output == "last")

    return build


def _convolution(kind: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
    def build(out: int, kernel: list[int], padding: list[int] | str, **options: Any) -> nn.Module:
        sizes = {key: tuple(options.pop(key)) for key in ("stride", "dilation", "output_padding") if key in options}
        pad = padding if isinstance(padding, str) else tuple(padding)
        return kind(options.pop("in"), out, tuple(kernel), padding=pad, **sizes, **options)

    return build


def _pool(kind: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
    def build(kernel: list[int], **options: Any) -> nn.Module:
        return kind(tuple(kernel), **{key: tuple(v) if isinstance(v, list) else v for key, v in options.items()})

    return build


def _encoder(heads: int, feedforward: int, num_layers: int, **options: Any) -> nn.Module:
    width = options.pop("in")
    layers = [
        nn.TransformerEncoderLayer(width, heads, feedforward, batch_first=True, **options) for _ in range(num_layers)
    ]
    return layers[0] if num_layers == 1 else nn.Sequential(*layers)


def _sized(kind: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
    """For types whose canonical `in` and `out` are torch's first two arguments."""

    def build(**options: Any) -> nn.Module:
        sizes = [options.pop(key) for key in ("in", "out") if key in options]
        return kind(*sizes, **options)

    return build


BUILDERS: dict[str, Callable[..., nn.Module]] = {
    "linear": _sized(nn.Linear),
    "embedding": _sized(nn.Embedding),
    "relu": nn.ReLU,
    "relu6": nn.ReLU6,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "mish": nn.Mish,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "leaky_relu": nn.LeakyReLU,
    "elu": nn.ELU,
    "celu": nn.CELU,
    "selu": nn.SELU,
    "softplus": nn.Softplus,
    "softsign": nn.Softsign,
    "hardswish": nn.Hardswish,
    "hardsigmoid": nn.Hardsigmoid,
    "hardtanh": nn.Hardtanh,
    "log_sigmoid": nn.LogSigmoid,
    "identity": nn.Identity,
    "dropout": nn.Dropout,
    "dropout1d": nn.Dropout1d,
    "dropout2d": nn.Dropout2d,
    "dropout3d": nn.Dropout3d,
    "alpha_dropout": nn.AlphaDropout,
    "prelu": lambda count: nn.PReLU(count),
    "softmax": nn.Softmax,
    "log_softmax": nn.LogSoftmax,
    "flatten": nn.Flatten,
    "reshape": lambda shape, **_: Reshape(shape),
    "permute": Permute,
    "mean": lambda dim: Reduce("mean", dim),
    "max": lambda dim: Reduce("max", dim),
    "global_avg_pool": lambda: Reduce("mean"),
    "global_max_pool": lambda: Reduce("max"),
    "conv1d": _convolution(nn.Conv1d),
    "conv2d": _convolution(nn.Conv2d),
    "conv3d": _convolution(nn.Conv3d),
    "conv_transpose1d": _convolution(nn.ConvTranspose1d),
    "conv_transpose2d": _convolution(nn.ConvTranspose2d),
    "conv_transpose3d": _convolution(nn.ConvTranspose3d),
    "max_pool1d": _pool(nn.MaxPool1d),
    "max_pool2d": _pool(nn.MaxPool2d),
    "max_pool3d": _pool(nn.MaxPool3d),
    "avg_pool1d": _pool(nn.AvgPool1d),
    "avg_pool2d": _pool(nn.AvgPool2d),
    "avg_pool3d": _pool(nn.AvgPool3d),
    "adaptive_avg_pool1d": lambda out: nn.AdaptiveAvgPool1d(out[0]),
    "adaptive_avg_pool2d": lambda out: nn.AdaptiveAvgPool2d(tuple(out)),
    "adaptive_avg_pool3d": lambda out: nn.AdaptiveAvgPool3d(tuple(out)),
    "adaptive_max_pool1d": lambda out: nn.AdaptiveMaxPool1d(out[0]),
    "adaptive_max_pool2d": lambda out: nn.AdaptiveMaxPool2d(tuple(out)),
    "adaptive_max_pool3d": lambda out: nn.AdaptiveMaxPool3d(tuple(out)),
    "batch_norm1d": _sized(nn.BatchNorm1d),
    "batch_norm2d": _sized(nn.BatchNorm2d),
    "batch_norm3d": _sized(nn.BatchNorm3d),
    "instance_norm1d": _sized(nn.InstanceNorm1d),
    "instance_norm2d": _sized(nn.InstanceNorm2d),
    "instance_norm3d": _sized(nn.InstanceNorm3d),
    "layer_norm": lambda shape, **options: nn.LayerNorm(tuple(shape), **options),
    "rms_norm": lambda shape, **options: nn.RMSNorm(tuple(shape), **options),
    "group_norm": lambda groups, **options: nn.GroupNorm(groups, options.pop("in"), **options),
    "upsample": lambda scale, mode: nn.Upsample(scale_factor=scale, mode=mode),
    "position_embedding": PositionEmbedding,
    "lstm": _recurrent(nn.LSTM),
    "gru": _recurrent(nn.GRU),
    "rnn": _recurrent(nn.RNN),
    "attention": lambda heads, dropout, bias, **options: SelfAttention(options["in"], heads, dropout, bias=bias),
    "transformer_encoder_layer": _encoder,
    "residual": lambda layers: Residual(build_layers(layers)),
    "sequential": lambda layers: build_layers(layers),
}
