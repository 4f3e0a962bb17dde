"""Networks that nobody chose: layers drawn at random, of the kinds that a list of layers may have.

The same seed draws the same networks. What is drawn and does not fit (a kernel larger than its image) is drawn again.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from benchmarks.workloads import Row
from probes.workload.description import InvalidModel, Mode
from probes.workload.models import parse_model

Document = dict[str, Any]
Draw = Callable[[Random], Document]

ACTIVATIONS = (
    "relu", "gelu", "silu", "tanh", "leaky_relu", "sigmoid", "elu", "hardswish", "softplus", "mish", "relu6",
    {"type": "dropout", "p": 0.2},
)  # fmt: skip
GROUPS = {"type": "group_norm", "groups": 4}
RESIZES = ({"type": "max_pool2d", "kernel": 2}, {"type": "avg_pool2d", "kernel": 2}, {"type": "upsample", "scale": 2})
MODES: tuple[Mode, ...] = ("training", "training", "inference")
OPTIMIZERS = ("adamw", "sgd", "adam")
FIRST_SIZES, SECOND_SIZES = (1, 2), (7, 16, 33)


def random_networks(count: int, seed: int) -> list[Row]:
    """So many, of each kind in turn."""
    chance = Random(seed)
    return [_row(f"{seed}/{number}", *DRAWS[number % len(DRAWS)], chance) for number in range(count)]


def _row(name: str, kind: str, draw: Draw, chance: Random) -> Row:
    model = _that_fits(draw, chance)
    sizes = chance.choice(FIRST_SIZES), chance.choice(SECOND_SIZES)
    mode, optimizer = chance.choice(MODES), chance.choice(OPTIMIZERS)
    return Row(f"random {kind} {name}", f"random {kind}", model, sizes, mode, optimizer)


def _that_fits(draw: Draw, chance: Random) -> Document:
    while True:
        model = draw(chance)
        try:
            parse_model(model)
        except InvalidModel:
            continue
        return model


def images(chance: Random) -> Document:
    layers: list[Any] = []
    width = 0
    for _ in range(chance.randint(1, 4)):
        layer, width = _convolution(chance, width)
        layers.append(layer)
        if chance.random() < 0.5:
            layers.append(chance.choice(["batch_norm", GROUPS]))
        if chance.random() < 0.8:
            layers.append(chance.choice(ACTIVATIONS))
        if chance.random() < 0.25:
            layers.append(chance.choice(RESIZES))
    layers.append(chance.choice(["global_avg_pool", "global_max_pool", "flatten"]))
    side = chance.choice([16, 20, 28, 32, 48])
    return _network(chance, layers, chance.choice([1, 3, 4, 12]), side, side)


def _convolution(chance: Random, width: int) -> tuple[Document, int]:
    """And how many channels it gives. width: channels before it; 0: the first of a network."""
    kernel, out = chance.choice([1, 3, 5, 7]), chance.choice([8, 16, 24, 32, 48, 64])
    kind = chance.choice(["plain", "plain", "depthwise", "grouped", "transposed"]) if width else "plain"
    layer = {"type": "conv2d", "out": out, "kernel": kernel, "padding": kernel // 2}
    if kind == "transposed":
        return {"type": "conv_transpose2d", "out": out, "kernel": 4, "stride": 2, "padding": 1}, out
    if kind == "depthwise":
        return {**layer, "out": width, "groups": width, "stride": chance.choice([1, 2])}, width
    if kind == "grouped":
        return {**layer, "groups": chance.choice([2, 4])}, out
    more = {"stride": chance.choice([1, 1, 2]), "dilation": chance.choice([1, 1, 2]), "bias": chance.random() < 0.7}
    return {**layer, **more}, out


def signals(chance: Random) -> Document:
    layers: list[Any] = []
    for _ in range(chance.randint(1, 4)):
        kernel, out = chance.choice([3, 5, 9]), chance.choice([8, 16, 64, 128])
        layers.append({"type": "conv1d", "out": out, "kernel": kernel, "stride": chance.choice([1, 2]), "padding": 2})
        layers += ["batch_norm"] if chance.random() < 0.5 else []
        layers.append(chance.choice(ACTIVATIONS))
    return _network(chance, [*layers, "global_avg_pool"], chance.choice([1, 6, 12]), chance.choice([128, 300, 1000]))


def volumes(chance: Random) -> Document:
    layers: list[Any] = []
    for _ in range(chance.randint(1, 3)):
        stride = chance.choice([1, 2])
        layers.append({"type": "conv3d", "out": chance.choice([4, 8, 16]), "kernel": 3, "padding": 1, "stride": stride})
        layers.append(chance.choice(ACTIVATIONS))
        layers += ["batch_norm"] if chance.random() < 0.4 else []
    side = chance.choice([8, 12, 16])
    return _network(chance, [*layers, "global_avg_pool"], chance.choice([1, 3]), side, side, side)


def dense(chance: Random) -> Document:
    layers: list[Any] = []
    for _ in range(chance.randint(1, 6)):
        layers += [{"type": "linear", "out": chance.choice([16, 50, 128, 300, 777, 1500])}, chance.choice(ACTIVATIONS)]
        layers += [chance.choice(["batch_norm", "layer_norm", "rms_norm"])] if chance.random() < 0.3 else []
    return _network(chance, layers, chance.choice([4, 13, 100, 784]))


def recurrent(chance: Random) -> Document:
    layers: list[Any] = [_recurrent(chance) for _ in range(chance.randint(1, 2))]
    layers += ["mean"] if chance.random() < 0.5 else []
    return _network(chance, layers, chance.choice([5, 20, 50]), chance.choice([1, 12, 64]))


def _recurrent(chance: Random) -> Document:
    sizes = {"hidden": chance.choice([16, 48, 128]), "num_layers": chance.choice([1, 2])}
    return {"type": chance.choice(["lstm", "gru", "rnn"]), **sizes, "bidirectional": chance.random() < 0.4}


def texts(chance: Random) -> Document:
    width = chance.choice([32, 64, 128, 192])
    layers: list[Any] = [{"type": "embedding", "in": chance.choice([100, 5000]), "out": width}]
    kind = chance.choice(["encoder", "encoder", "recurrent", "dense"])
    for _ in range(chance.randint(1, 3)):
        if kind == "encoder":
            sizes = {"heads": chance.choice([2, 4, 8]), "feedforward": chance.choice([64, 256, 512])}
            layers.append({"type": "transformer_encoder_layer", **sizes, "dropout": chance.choice([0.0, 0.1])})
        elif kind == "recurrent":
            layers.append({"type": "gru", "hidden": width})
        else:
            layers += [{"type": "linear", "out": width}, chance.choice(ACTIVATIONS)]
    return _network(chance, [*layers, "mean"], chance.choice([8, 33, 64, 128]))


def _network(chance: Random, layers: list[Any], *shape: int) -> Document:
    return {"layers": [*layers, {"type": "linear", "out": chance.choice([2, 10, 100])}], "input_shape": list(shape)}


DRAWS: tuple[tuple[str, Draw], ...] = (
    ("images", images),
    ("text", texts),
    ("images", images),
    ("signals", signals),
    ("dense", dense),
    ("images", images),
    ("volumes", volumes),
    ("recurrent", recurrent),
)
