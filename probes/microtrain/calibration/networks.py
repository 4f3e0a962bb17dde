"""Whole micro-networks: small, and different in what their steps are made of. What operations cost in context is read
off them (cold caches, the allocator, autograd)."""

from __future__ import annotations

from typing import Any, NamedTuple

from probes.microtrain.calibration import assorted_networks, looped_network
from probes.workload.description import MODES, Mode, Workload
from probes.workload.models import parse_model, python_model

Layer = dict[str, Any]


class MicroNetwork(NamedTuple):
    """layers: or the name of Python that makes it (probes.microtrain.building.python_models). batch_sizes: of training,
    from one where issuing dominates to one where computing does. large_batch: one whose step leaves nothing in any
    cache, or computes for longer than it reads, or has thousands of rows of a few numbers; only its operations are
    clocked, and not often, as it takes long. modes: in which it is run. timed: whether its whole steps are; where not,
    its operations are clocked alone."""

    name: str
    layers: list[Layer] | str
    input_shape: list[int]
    batch_sizes: tuple[int, ...]
    large_batch: int | None = None
    modes: tuple[Mode, ...] = MODES
    timed: bool = True

    def sizes(self, mode: Mode) -> tuple[int, ...]:
        """Batch sizes. Inference has one sample at a time beside them: it is how models are served, and libraries take
        other ways for it (a matrix times a vector reads its weights once, and computes next to nothing)."""
        alone = mode == "inference" and self.batch_sizes[0] > 1
        return (1, *self.batch_sizes) if alone else self.batch_sizes

    def workload(self, mode: Mode) -> Workload:
        """With resident data and torch's defaults: what is read off it is computing and issuing alone."""
        if isinstance(self.layers, str):
            model = python_model(self.layers)
        else:
            model = parse_model({"layers": self.layers, "input_shape": self.input_shape})
        return Workload(model, self.batch_sizes[0], mode=mode, data="resident")


def _linear(
    width: int, depth: int, out: int, activation: str = "relu", dropout: float = 0.0, *, bias: bool = True
) -> list[Layer]:
    hidden: list[Layer] = []
    for _ in range(depth):
        hidden += [{"type": "linear", "out": width, "bias": bias}, {"type": activation}]
        hidden += [{"type": "dropout", "p": dropout}] if dropout else []
    return [*hidden, {"type": "linear", "out": out}]


def _convolutions(widths: tuple[int, ...], *, norm: bool) -> list[Layer]:
    layers: list[Layer] = []
    for width in widths:
        layers.append({"type": "conv2d", "out": width, "kernel": 3, "padding": 1})
        layers += [{"type": "batch_norm"}] if norm else []
        layers += [{"type": "relu"}, {"type": "max_pool2d", "kernel": 2}]
    return [*layers, {"type": "flatten"}, {"type": "linear", "out": 10}]


def _mobile(width: int, depth: int) -> list[Layer]:
    """Pointwise, depthwise and pointwise convolutions around which the input is added, as mobile networks have; every
    second depthwise one with a large kernel. Two that halve the image are after them."""
    stem = {"type": "conv2d", "out": width, "kernel": 3, "stride": 2, "padding": 1}
    blocks = [{"type": "residual", "layers": _mobile_block(width, 5 if place % 2 else 3)} for place in range(depth)]
    halving = [layer for kernel in (3, 5) for layer in _mobile_block(width, kernel, stride=2)]
    return [stem, *blocks, *halving, {"type": "global_avg_pool"}, *_linear(1, 0, 10)]


def _mobile_block(width: int, kernel: int, stride: int = 1) -> list[Layer]:
    places = {"kernel": kernel, "padding": kernel // 2, "stride": stride}
    return [
        {"type": "conv2d", "out": 3 * width, "kernel": 1},
        {"type": "batch_norm"},
        {"type": "silu"},
        {"type": "conv2d", "out": 3 * width, "groups": 3 * width, **places},
        {"type": "batch_norm"},
        {"type": "silu"},
        {"type": "conv2d", "out": width, "kernel": 1},
        {"type": "batch_norm"},
    ]


def _channels_last(width: int, kernels: tuple[int, ...]) -> list[Layer]:
    """A stem that makes patches of an image, then blocks of a depthwise convolution and two linear layers over channels
    around which the input is added, as networks have whose channels lie last (Liu et al., 2022, "A ConvNet for the
    2020s")."""
    channels_to_the_end, and_back = {"type": "permute", "dims": [2, 3, 1]}, {"type": "permute", "dims": [3, 1, 2]}
    norm: Layer = {"type": "layer_norm"}

    def block(kernel: int) -> list[Layer]:
        depthwise = {"type": "conv2d", "out": width, "kernel": kernel, "padding": kernel // 2, "groups": width}
        return [depthwise, channels_to_the_end, norm, *_linear(3 * width, 1, width, "gelu"), and_back]

    return [
        {"type": "conv2d", "out": width, "kernel": 4, "stride": 4},
        *(channels_to_the_end, norm, and_back),
        *({"type": "residual", "layers": block(kernel)} for kernel in kernels),
        {"type": "global_avg_pool"},
        *_linear(1, 0, 10),
    ]


def _residual(width: int) -> list[Layer]:
    """A stem of 7 x 7 that halves the image, and a block of two convolutions with the input added."""
    block: list[Layer] = [
        {"type": "conv2d", "out": width, "kernel": 3, "padding": 1},
        {"type": "batch_norm"},
        {"type": "relu"},
        {"type": "conv2d", "out": width, "kernel": 3, "padding": 1},
        {"type": "batch_norm"},
    ]
    stem: list[Layer] = [
        {"type": "conv2d", "out": width, "kernel": 7, "stride": 2, "padding": 3},
        {"type": "batch_norm"},
        {"type": "relu"},
    ]
    return [
        *stem,
        {"type": "residual", "layers": block},
        {"type": "relu"},
        {"type": "global_avg_pool"},
        *_linear(1, 0, 10),
    ]


def _signal(width: int) -> list[Layer]:
    layers: list[Layer] = []
    for out in (width, 2 * width):
        layers += [{"type": "conv1d", "out": out, "kernel": 7, "padding": 3}, {"type": "tanh"}]
        layers.append({"type": "avg_pool1d", "kernel": 4})
    return [*layers, {"type": "flatten"}, *_linear(1, 0, 6)]


def _transformer(width: int, depth: int, heads: int = 4, vocabulary: int = 1_000, dropout: float = 0.1) -> list[Layer]:
    """With dropout attention is made of products and a softmax, without it is one kernel."""
    encoder = {"type": "transformer_encoder_layer", "heads": heads, "feedforward": 4 * width, "dropout": dropout}
    tokens: list[Layer] = [{"type": "embedding", "in": vocabulary, "out": width}, {"type": "position_embedding"}]
    return [*tokens, *[encoder] * depth, {"type": "mean"}, {"type": "linear", "out": 2}]


def _assorted(what: str, *batch_sizes: int) -> MicroNetwork:
    target = f"{assorted_networks.__name__}:{what}"
    return MicroNetwork(f"assorted-{what}", target, [], batch_sizes, modes=("training",), timed=False)


MICRO_NETWORKS: tuple[MicroNetwork, ...] = (
    # Few classes of many rows: losses and products that take a row at a time.
    MicroNetwork("mlp-tiny", _linear(24, 1, 4, "tanh", 0.1), [12], (4, 64), 2048),
    MicroNetwork("mlp-narrow", _linear(64, 3, 10), [32], (8, 64, 512), 4096),
    MicroNetwork("mlp-single", _linear(160, 2, 1), [40], (32, 512), 2048),
    MicroNetwork("mlp-middling", _linear(320, 2, 12, bias=True), [150], (24, 160, 768)),
    # Trained by one sample and by two: products that read or write a matrix and hardly compute.
    MicroNetwork("mlp-wide", _linear(512, 2, 10), [784], (1, 8, 64, 256)),
    MicroNetwork("mlp-deep", _linear(192, 8, 20, "gelu", 0.2), [64], (4, 32, 512)),
    MicroNetwork("mlp-huge", _linear(1536, 2, 100, "sigmoid", bias=False), [1024], (2, 128), 512),
    MicroNetwork("mlp-broad", _linear(2304, 1, 8, "gelu", 0.1, bias=False), [64], (16, 128), 4096),
    # As many classes as a language model has words: losses and products of tall and of flat matrices.
    MicroNetwork("mlp-classes", _linear(96, 1, 8_000), [64], (16, 256), 1024),
    # Weights that no cache holds, read once a sample, and products that compute for longer than they read.
    MicroNetwork("mlp-vast", _linear(3072, 2, 10), [1024], (1, 16), 256, modes=("inference",)),
    # Attention of as many places as an image has patches.
    MicroNetwork("transformer-patches", _transformer(192, 2, 3, dropout=0.0), [50], (2, 16), modes=("training",)),
    MicroNetwork("transformer-short", _transformer(96, 1, 3, dropout=0.0), [112], (2, 20), modes=("training",)),
    MicroNetwork("transformer-fused", _transformer(128, 1, dropout=0.0), [200], (1, 8), modes=("training",)),
    MicroNetwork("cnn", _convolutions((16, 32), norm=False), [3, 32, 32], (4, 16, 64)),
    MicroNetwork("cnn-norm", _convolutions((32, 64, 64), norm=True), [3, 32, 32], (4, 16), 64),
    MicroNetwork("cnn-residual", _residual(48), [3, 64, 64], (2, 12), 64),
    MicroNetwork("cnn-mobile", _mobile(24, 2), [3, 64, 64], (2, 12), 48),
    MicroNetwork("cnn-last", _channels_last(48, (7, 3)), [3, 96, 96], (2, 12), 48),
    MicroNetwork("cnn-signal", _signal(32), [2, 1024], (4, 32)),
    MicroNetwork("transformer", _transformer(128, 2), [64], (2, 16), 48),
    MicroNetwork("transformer-wide", _transformer(320, 2, 5, 16_000), [96], (1, 6)),
    MicroNetwork("transformer-long", _transformer(64, 1, 2), [384], (2, 8), 30),
    MicroNetwork(
        "lstm", [{"type": "lstm", "hidden": 64, "output": "last"}, {"type": "linear", "out": 4}], [48, 16], (1, 8, 64)
    ),
    MicroNetwork(
        "gru", [{"type": "gru", "hidden": 48, "output": "last"}, {"type": "linear", "out": 4}], [14, 20], (4, 96)
    ),
    MicroNetwork(
        "gru-wide", [{"type": "gru", "hidden": 160, "output": "last"}, {"type": "linear", "out": 4}], [24, 32], (24,)
    ),
    MicroNetwork(
        "lstm-wide",
        [{"type": "lstm", "hidden": 192, "output": "last"}, {"type": "linear", "out": 4}],
        [32, 96],
        (4, 32),
    ),
    MicroNetwork("looped", f"{looped_network.__name__}:looped", [], (4, 64)),
    MicroNetwork(
        "embedding-classifier",
        [{"type": "embedding", "in": 10_000, "out": 128}, {"type": "mean"}, *_linear(128, 1, 5)],
        [64],
        (8, 128),
    ),
    MicroNetwork(
        "embedding-large",
        [{"type": "embedding", "in": 72_000, "out": 128}, {"type": "mean"}, *_linear(64, 0, 5)],
        [32],
        (32,),
    ),
    _assorted("elementwise", 4, 32),
    _assorted("rows", 2, 12),
    _assorted("images", 2, 12),
    _assorted("volumes", 2, 8),
    _assorted("signals", 2, 12),
)
