"""A layer list as Python that builds it: torch's own layers, and small classes where torch has none."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

Content = Mapping[str, Any]

# Layers that take nothing but what their canonical options say, by the same names: type -> (class, option -> keyword).
_PLAIN: dict[str, tuple[str, dict[str, str]]] = {
    "relu": ("nn.ReLU", {}),
    "relu6": ("nn.ReLU6", {}),
    "gelu": ("nn.GELU", {"approximate": "approximate"}),
    "silu": ("nn.SiLU", {}),
    "mish": ("nn.Mish", {}),
    "tanh": ("nn.Tanh", {}),
    "sigmoid": ("nn.Sigmoid", {}),
    "leaky_relu": ("nn.LeakyReLU", {"negative_slope": "negative_slope"}),
    "elu": ("nn.ELU", {"alpha": "alpha"}),
    "celu": ("nn.CELU", {"alpha": "alpha"}),
    "selu": ("nn.SELU", {}),
    "softplus": ("nn.Softplus", {}),
    "softsign": ("nn.Softsign", {}),
    "hardswish": ("nn.Hardswish", {}),
    "hardsigmoid": ("nn.Hardsigmoid", {}),
    "hardtanh": ("nn.Hardtanh", {}),
    "log_sigmoid": ("nn.LogSigmoid", {}),
    "identity": ("nn.Identity", {}),
    "dropout": ("nn.Dropout", {"p": "p"}),
    "alpha_dropout": ("nn.AlphaDropout", {"p": "p"}),
    "prelu": ("nn.PReLU", {"count": "num_parameters"}),
    "softmax": ("nn.Softmax", {"dim": "dim"}),
    "log_softmax": ("nn.LogSoftmax", {"dim": "dim"}),
    "linear": ("nn.Linear", {"in": "", "out": "", "bias": "bias"}),
    "flatten": ("nn.Flatten", {"start_dim": "start_dim", "end_dim": "end_dim"}),
    "layer_norm": ("nn.LayerNorm", {"shape": "", "eps": "eps"}),
    "rms_norm": ("nn.RMSNorm", {"shape": "", "eps": "eps"}),
    "group_norm": ("nn.GroupNorm", {"groups": "", "in": "", "eps": "eps"}),
    "upsample": ("nn.Upsample", {"scale": "scale_factor", "mode": "mode"}),
    "embedding": ("nn.Embedding", {"in": "", "out": ""}),
    "position_embedding": ("Positions", {"steps": "", "features": ""}),
    "permute": ("Permute", {"dims": ""}),
    "mean": ("Mean", {"dim": ""}),
    "max": ("Max", {"dim": ""}),
    "global_avg_pool": ("GlobalMean", {}),
    "global_max_pool": ("GlobalMax", {}),
    "attention": ("SelfAttention", {"in": "", "heads": "", "dropout": "dropout", "bias": "bias"}),
    "transformer_encoder_layer": (
        "nn.TransformerEncoderLayer",
        {
            "in": "",
            "heads": "",
            "feedforward": "",
            "dropout": "dropout",
            "activation": "activation",
            "norm_first": "norm_first",
        },
    ),
}
_RECURRENT = {
    "hidden": "",
    "num_layers": "num_layers",
    "bidirectional": "bidirectional",
    "dropout": "dropout",
    "bias": "bias",
    "nonlinearity": "nonlinearity",
}
_CONVOLUTION = {
    "in": "",
    "out": "",
    "kernel": "",
    "stride": "stride",
    "padding": "padding",
    "output_padding": "output_padding",
    "dilation": "dilation",
    "groups": "groups",
    "bias": "bias",
}
_POOL = {"kernel": "", "stride": "stride", "padding": "padding", "dilation": "dilation", "ceil_mode": "ceil_mode"}
_NORM = {"in": "", "affine": "affine", "eps": "eps", "momentum": "momentum"}
# Families whose type ends in the number of axes: `conv2d` -> nn.Conv2d.
_SPATIAL: dict[str, tuple[str, dict[str, str]]] = {
    "conv": ("nn.Conv", _CONVOLUTION),
    "conv_transpose": ("nn.ConvTranspose", _CONVOLUTION),
    "max_pool": ("nn.MaxPool", _POOL),
    "avg_pool": ("nn.AvgPool", _POOL),
    "adaptive_avg_pool": ("nn.AdaptiveAvgPool", {"out": ""}),
    "adaptive_max_pool": ("nn.AdaptiveMaxPool", {"out": ""}),
    "batch_norm": ("nn.BatchNorm", _NORM),
    "instance_norm": ("nn.InstanceNorm", _NORM),
    "dropout": ("nn.Dropout", {"p": "p"}),
}
# What torch assumes when nothing is written: left out, so that the snippet reads as people write it.
_DEFAULTS: dict[str, Any] = {
    "bias": True,
    "affine": True,
    "approximate": "none",
    "groups": 1,
    "ceil_mode": False,
    "bidirectional": False,
    "num_layers": 1,
    "norm_first": False,
    "nonlinearity": "tanh",
    "start_dim": 1,
    "end_dim": -1,
}
_NOTHING = {"stride": "1", "dilation": "1", "padding": "0", "output_padding": "0"}

HELPERS: dict[str, str] = {
    "Permute": """class Permute(nn.Module):
    def __init__(self, *dims):
        super().__init__()
        self.dims = dims

    def forward(self, x):
        return x.permute(0, *self.dims)
""",
    "Mean": """class Mean(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        return x.mean(self.dim)
""",
    "Max": """class Max(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        return x.amax(self.dim)
""",
    "GlobalMean": """class GlobalMean(nn.Module):
    def forward(self, x):
        return x.flatten(2).mean(2)
""",
    "GlobalMax": """class GlobalMax(nn.Module):
    def forward(self, x):
        return x.flatten(2).amax(2)
""",
    "Positions": """class Positions(nn.Module):
    def __init__(self, steps, features):
        super().__init__()
        self.weight = nn.Parameter(0.02 * torch.randn(steps, features))

    def forward(self, x):
        return x + self.weight
""",
    "SelfAttention": """class SelfAttention(nn.Module):
    def __init__(self, features, heads, **options):
        super().__init__()
        self.attention = nn.MultiheadAttention(features, heads, batch_first=True, **options)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]
""",
    "Recurrent": """class Recurrent(nn.Module):
    def __init__(self, layer, last):
        super().__init__()
        self.layer, self.last = layer, last

    def forward(self, x):
        output, state = self.layer(x)
        if not self.last:
            return output
        hidden = state[0] if isinstance(state, tuple) else state
        return torch.cat((hidden[-2], hidden[-1]), -1) if self.layer.bidirectional else hidden[-1]
""",
    "Residual": """class Residual(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return x + self.layers(x)
""",
}


class UnknownLayer(LookupError):
    """A layer type that this table has no row for."""


def write_layers(layers: Sequence[Content], dimensions: int) -> tuple[str, str]:
    """(classes that the layers need, the expression that builds them). Raises UnknownLayer.

    dimensions: of the input with the batch. It tells `nn.Flatten()` from one that stops early.
    """
    expression = _nested("nn.Sequential", _plain_flattens(layers, dimensions), "")
    helpers = [code for name, code in HELPERS.items() if re.search(rf"(?<![\w.]){name}\(", expression)]
    return "\n\n".join(helpers).rstrip("\n"), expression


def _plain_flattens(layers: Sequence[Content], dimensions: int) -> list[Content]:
    """The same layers, with the flattens up to the last dimension as torch has them by default."""
    plain: list[Content] = []
    for layer in layers:
        whole = layer["type"] == "flatten" and layer["end_dim"] == dimensions - 1
        plain.append({**layer, "end_dim": -1} if whole else layer)
        dimensions = _dimensions_after(layer, dimensions)
    return plain


def _dimensions_after(layer: Content, dimensions: int) -> int:
    kind = layer["type"]
    if kind == "flatten":
        return dimensions - (int(layer["end_dim"]) - int(layer["start_dim"]))
    if kind == "reshape":
        return 1 + len(layer["shape"])
    if kind == "sequential":
        for inner in layer["layers"]:
            dimensions = _dimensions_after(inner, dimensions)
    changes = {
        "embedding": 1,
        "mean": -1,
        "max": -1,
        "global_avg_pool": 2 - dimensions,
        "global_max_pool": 2 - dimensions,
    }
    return dimensions + (-1 if layer.get("output") == "last" else changes.get(str(kind), 0))


def _nested(name: str, layers: Sequence[Content], indent: str) -> str:
    inner = indent + "    "
    rows = [f"{inner}{line},\n" for layer in layers for line in _layer(layer, inner)]
    return f"{name}(\n{''.join(rows)}{indent})"


def _layer(content: Content, indent: str) -> list[str]:
    """The expressions, one after another, that make one layer."""
    kind = str(content["type"])
    if kind in ("sequential", "residual"):
        name = "Residual" if kind == "residual" else "nn.Sequential"
        return [_nested(name, content["layers"], indent)]
    if kind in ("lstm", "gru", "rnn"):
        return [_recurrent(kind, content)]
    if kind == "reshape":
        shape = tuple(content["shape"])
        return ["nn.Flatten()"] + ([f"nn.Unflatten(1, {shape})"] if len(shape) > 1 else [])
    if kind == "transformer_encoder_layer":
        return [_call(*_PLAIN[kind], content, extra={"batch_first": True})] * content["num_layers"]
    if kind == "permute":
        return [f"Permute({', '.join(map(str, content['dims']))})"]
    return [_call(*_row(kind), content)]


def _row(kind: str) -> tuple[str, dict[str, str]]:
    if kind in _PLAIN:
        return _PLAIN[kind]
    family, axes = kind[:-2], kind[-2:]
    if family in _SPATIAL and axes in ("1d", "2d", "3d"):
        name, options = _SPATIAL[family]
        return name + axes, options
    raise UnknownLayer(kind)


def _recurrent(kind: str, content: Content) -> str:
    layer = _call(f"nn.{kind.upper()}", {"in": "", **_RECURRENT}, content, extra={"batch_first": True})
    return f"Recurrent({layer}, last={content['output'] == 'last'})"


def _call(name: str, options: Mapping[str, str], content: Content, extra: Mapping[str, Any] | None = None) -> str:
    """`nn.Linear(4, 10, bias=False)`: options without a keyword stand first."""
    written: list[str] = []
    for option, keyword in options.items():
        if option not in content or (keyword and content[option] == _default(name, option)):
            continue
        value = _shape(content[option]) if option == "shape" else _value(content[option])
        if value == _usual(name, keyword, content):
            continue
        written.append(f"{keyword}={value}" if keyword else value)
    written += [f"{keyword}={value!r}" for keyword, value in (extra or {}).items()]
    return f"{name}({', '.join(written)})"


def _default(name: str, option: str) -> Any:
    """What torch assumes; of the norms, instance norm alone has no weights unless told."""
    return False if option == "affine" and "InstanceNorm" in name else _DEFAULTS.get(option)


def _usual(name: str, keyword: str, content: Content) -> str | None:
    """What torch takes when this keyword is left out: a pool's stride is its kernel."""
    if keyword == "stride" and "Pool" in name:
        return _value(content["kernel"])
    return _NOTHING.get(keyword)


def _shape(value: Any) -> str:
    """Sizes of axes, which one number cannot stand for unless there is one axis."""
    sizes = tuple(value) if isinstance(value, list | tuple) else (value,)
    return repr(sizes if len(sizes) > 1 else sizes[0])


def _value(value: Any) -> str:
    """Python for one option; a list of equal sizes is one size."""
    if isinstance(value, list | tuple):
        return str(value[0]) if len(set(value)) == 1 else repr(tuple(value))
    return f'"{value}"' if isinstance(value, str) else repr(value)
