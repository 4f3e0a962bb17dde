"""Whole micro-networks: small, and different in what their steps are made of. What operations cost in context is read
off them (cold caches, the allocator, autograd)."""

from __future__ import annotations

from typing import Any, NamedTuple

from probes.workload.description import Mode, Workload
from probes.workload.models import parse_model

Layer = dict[str, Any]


class MicroNetwork(NamedTuple):
    """batch_sizes: a small one, where issuing dominates, and one where computing does."""

    name: str
    layers: list[Layer]
    input_shape: list[int]
    batch_sizes: tuple[int, int]

    def workload(self, mode: Mode) -> Workload:
        """With resident data and torch's defaults: what is read off it is computing and issuing alone."""
        model = parse_model({"layers": self.layers, "input_shape": self.input_shape})
        return Workload(model, self.batch_sizes[0], mode=mode, data="resident")


def _linear(width: int, depth: int, out: int) -> list[Layer]:
    hidden = [layer for _ in range(depth) for layer in ({"type": "linear", "out": width}, {"type": "relu"})]
    return [*hidden, {"type": "linear", "out": out}]


def _convolutions(widths: tuple[int, ...], *, norm: bool) -> list[Layer]:
    layers: list[Layer] = []
    for width in widths:
        layers.append({"type": "conv2d", "out": width, "kernel": 3, "padding": 1})
        layers += [{"type": "batch_norm"}] if norm else []
        layers += [{"type": "relu"}, {"type": "max_pool2d", "kernel": 2}]
    return [*layers, {"type": "flatten"}, {"type": "linear", "out": 10}]


def _transformer(width: int, depth: int) -> list[Layer]:
    encoder = {"type": "transformer_encoder_layer", "heads": 4, "feedforward": 4 * width}
    tokens: list[Layer] = [{"type": "embedding", "in": 1_000, "out": width}, {"type": "position_embedding"}]
    return [*tokens, *[encoder] * depth, {"type": "mean"}, {"type": "linear", "out": 2}]


MICRO_NETWORKS: tuple[MicroNetwork, ...] = (
    MicroNetwork("mlp-narrow", _linear(64, 3, 10), [32], (8, 256)),
    MicroNetwork("mlp-wide", _linear(512, 2, 10), [784], (16, 256)),
    MicroNetwork("cnn", _convolutions((16, 32), norm=False), [3, 32, 32], (4, 32)),
    MicroNetwork("cnn-norm", _convolutions((32, 64, 64), norm=True), [3, 32, 32], (4, 16)),
    MicroNetwork("transformer", _transformer(128, 2), [64], (2, 16)),
    MicroNetwork(
        "lstm", [{"type": "lstm", "hidden": 64, "output": "last"}, {"type": "linear", "out": 4}], [48, 16], (8, 64)
    ),
    MicroNetwork(
        "embedding-classifier",
        [{"type": "embedding", "in": 10_000, "out": 128}, {"type": "mean"}, *_linear(128, 1, 5)],
        [64],
        (8, 128),
    ),
)
