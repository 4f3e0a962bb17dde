"""Layer types that know no space and no time: linear, activations, dropout, and changes of shape."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

from probes.bounds import MAX_DIMENSIONS
from probes.workload.axes import check_features_last
from probes.workload.description import InvalidModel
from probes.workload.flow import Flow
from probes.workload.layer_types import Layer, LayerType, agree, require
from probes.workload.options import Choice, Flag, Option, Real, Whole, Wholes

IN = Whole("in", aliases=("in_features", "in_channels", "input_size", "num_features", "inputs"))
BIAS = Flag("bias", default=True)


def infer_linear(where: str, options: dict[str, Any], flow: Flow) -> Layer:
    outputs = require(where, options, "out", '"out": 10')
    hint = 'Put {"type": "flatten"} before it.' if options.get("in") == flow.elements and len(flow.shape) > 1 else ""
    inputs = agree(where, options, "in", flow.shape[-1], flow, hint)
    check_features_last(where, options, flow, takes_flat=True)
    content = {"type": "linear", "in": inputs, "out": outputs, "bias": options["bias"]}
    after = flow.reshaped(where, (*flow.shape[:-1], outputs), channels_first=False, features_last=True)
    return Layer(content, after, inputs * outputs + outputs * options["bias"])


def infer_same(name: str, where: str, options: dict[str, Any], flow: Flow) -> Layer:
    """A layer that changes numbers, not shapes."""
    return Layer({"type": name, **options}, flow)


def infer_prelu(where: str, options: dict[str, Any], flow: Flow) -> Layer:
    """A weight for all numbers or one a channel, which torch takes axis 1 for, whatever it is."""
    channels = flow.shape[0]
    count = channels if options["count"] == "channels" else options["count"]
    if count not in (1, channels):
        raise InvalidModel(
            f'{where}: "count" is {count}, but {channels} channels arrive: one sample is {flow.text}. '
            'Write "count": "channels", a weight for each, or 1 for all of them.'
        )
    return Layer({"type": "prelu", "count": count}, flow, count)


def infer_softmax(name: str, where: str, options: dict[str, Any], flow: Flow) -> Layer:
    dim = axis_of(where, options["dim"], flow) if "dim" in options else (1 if flow.channels_first else len(flow.shape))
    return Layer({"type": name, "dim": dim}, flow)


def axis_of(where: str, dim: int, flow: Flow) -> int:
    """An axis as torch counts it with the batch at 0; from 1 to the number of dimensions. Raises InvalidModel."""
    rank = len(flow.shape) + 1
    axis = dim + rank if dim < 0 else dim
    if 1 <= axis < rank:
        return axis
    raise InvalidModel(
        f'{where}: "dim" is {dim}, but its input has the axes 1 to {rank - 1} (0 is the batch): it is {flow.text}.'
    )


def infer_flatten(where: str, options: dict[str, Any], flow: Flow) -> Layer:
    start = axis_of(where, options["start_dim"], flow)
    end = axis_of(where, options["end_dim"], flow)
    if start > end:
        raise InvalidModel(f'{where}: "start_dim" lies behind "end_dim". Leave both out to flatten everything.')
    shape = (*flow.shape[: start - 1], prod(flow.shape[start - 1 : end]), *flow.shape[end:])
    return Layer({"type": "flatten", "start_dim": start, "end_dim": end}, flow.reshaped(where, shape))


def infer_reshape(where: str, options: dict[str, Any], flow: Flow) -> Layer:
    shape = require(where, options, "shape", '"shape": [1, 28, 28]')
    shape = list(shape) if isinstance(shape, list) else [shape]
    known = prod(size for size in shape if size != -1)
    if shape.count(-1) == 1 and known and flow.elements % known == 0:
        shape[shape.index(-1)] = flow.elements // known
    if -1 in shape or prod(shape) != flow.elements:
        raise InvalidModel(
            f"{where} cannot make its shape of {flow.text} ({flow.elements} numbers a sample). "
            "Write sizes, without the batch, whose product is that number; one of them may be -1."
        )
    return _reshaped(where, tuple(shape), flow, first=options.get("channels_first", False))


def _reshaped(where: str, shape: tuple[int, ...], flow: Flow, *, first: bool) -> Layer:
    """first: whether the classes lie in the first axis afterwards, which sizes alone do not say."""
    content = {"type": "reshape", "shape": list(shape)} | ({"channels_first": True} if first else {})
    return Layer(content, flow.reshaped(where, shape, channels_first=first))


def infer_unflatten(where: str, options: dict[str, Any], flow: Flow) -> Layer:
    """One axis as several; built as the reshape that it is."""
    axis = axis_of(where, options["dim"], flow)
    sizes = require(where, options, "sizes", '"sizes": [3, -1]')
    sizes = list(sizes) if isinstance(sizes, list) else [sizes]
    size = flow.shape[axis - 1]
    known = prod(part for part in sizes if part != -1)
    if sizes.count(-1) == 1 and known and size % known == 0:
        sizes[sizes.index(-1)] = size // known
    if -1 in sizes or prod(sizes) != size:
        raise InvalidModel(
            f"{where} cannot make its sizes of axis {axis}, which is {size} long: one sample is {flow.text}. "
            "Write sizes whose product is that number; one of them may be -1."
        )
    shape = (*flow.shape[: axis - 1], *sizes, *flow.shape[axis:])
    return _reshaped(where, shape, flow, first=False)


def infer_permute(where: str, options: dict[str, Any], flow: Flow) -> Layer:
    dims = require(where, options, "dims", '"dims": [2, 1]')
    axes = [axis_of(where, dim, flow) for dim in (dims if isinstance(dims, list) else [dims])]
    if sorted(axes) != list(range(1, len(flow.shape) + 1)):
        raise InvalidModel(f'{where}: "dims" must name each of the axes 1 to {len(flow.shape)} once.')
    first = flow.channels_first and axes[0] == 1
    last = (flow.channels_first and axes[-1] == 1) or (flow.features_last and axes[-1] == len(axes))
    shape = tuple(flow.shape[axis - 1] for axis in axes)
    after = flow.reshaped(where, shape, channels_first=first, features_last=last)
    return Layer({"type": "permute", "dims": axes}, after)


def infer_transpose(where: str, options: dict[str, Any], flow: Flow) -> Layer:
    axes = list(range(1, len(flow.shape) + 1))
    one, other = axis_of(where, options["dim0"], flow), axis_of(where, options["dim1"], flow)
    axes[one - 1], axes[other - 1] = other, one
    return infer_permute(where, {"dims": axes}, flow)


def infer_unsqueeze(where: str, options: dict[str, Any], flow: Flow) -> Layer:
    rank = len(flow.shape) + 2
    axis = options["dim"] + rank if options["dim"] < 0 else options["dim"]
    if not 1 <= axis < rank:
        raise InvalidModel(f'{where}: "dim" must lie between 1 and {rank - 1} (0 is the batch).')
    shape = (*flow.shape[: axis - 1], 1, *flow.shape[axis - 1 :])
    return _reshaped(where, shape, flow, first=flow.channels_first and axis != 1)


def infer_squeeze(where: str, options: dict[str, Any], flow: Flow) -> Layer:
    axis = axis_of(where, require(where, options, "dim", '"dim": 1'), flow)
    if flow.shape[axis - 1] != 1 or len(flow.shape) == 1:
        raise InvalidModel(f'{where}: axis {axis} of {flow.text} cannot be dropped; "dim" must name one of size 1.')
    shape = (*flow.shape[: axis - 1], *flow.shape[axis:])
    return _reshaped(where, shape, flow, first=flow.channels_first and axis != 1)


def infer_mean(name: str, where: str, options: dict[str, Any], flow: Flow) -> Layer:
    """Over a sequence's steps, which come last behind a convolution, else first."""
    steps = -1 if flow.channels_first and len(flow.shape) == 2 else 1
    axis = axis_of(where, options.get("dim", steps), flow)
    if len(flow.shape) < 2:
        raise InvalidModel(f"{where} would leave nothing of {flow.text}: it needs at least two dimensions a sample.")
    shape = (*flow.shape[: axis - 1], *flow.shape[axis:])
    first, last = flow.channels_first and axis != 1, flow.features_last and axis != len(flow.shape)
    after = flow.reshaped(where, shape, channels_first=first, features_last=last)
    return Layer({"type": name, "dim": axis}, after)


def plain(name: str, *aliases: str, options: tuple[Option, ...] = ()) -> LayerType:
    """A type whose shape goes through unchanged."""
    return LayerType(name, (*options, INPLACE), partial(infer_unchanged, name), aliases)


def infer_unchanged(name: str, where: str, options: dict[str, Any], flow: Flow) -> Layer:
    return infer_same(name, where, {key: value for key, value in options.items() if key != "inplace"}, flow)


# `inplace` saves memory where torch allows it; whether it is written changes nothing that is asked here.
INPLACE = Flag("inplace")
DIM = Whole("dim", aliases=("axis",), low=-MAX_DIMENSIONS, high=MAX_DIMENSIONS)
FIRST_DIM = Whole("dim", aliases=("axis",), default=1, low=-MAX_DIMENSIONS, high=MAX_DIMENSIONS)
DROPOUT = (Real("p", aliases=("rate", "dropout"), default=0.5, high=0.999),)

PLAIN_TYPES = (
    LayerType(
        "linear",
        (IN, Whole("out", aliases=("out_features", "units", "outputs", "output_size")), BIAS),
        infer_linear,
        ("dense", "fc"),
    ),
    plain("relu"),
    plain("relu6"),
    plain("gelu", options=(Choice("approximate", default="none", among=("none", "tanh")),)),
    plain("silu", "swish"),
    plain("mish"),
    plain("tanh"),
    plain("sigmoid"),
    plain("leaky_relu", options=(Real("negative_slope", aliases=("alpha",), default=0.01, high=1e6),)),
    plain("elu", options=(Real("alpha", default=1.0, high=1e6),)),
    plain("celu", options=(Real("alpha", default=1.0, low=1e-6, high=1e6),)),
    plain("selu"),
    plain("softplus"),
    plain("softsign"),
    plain("hardswish", "hard_swish"),
    plain("hardsigmoid", "hard_sigmoid"),
    plain("hardtanh", "hard_tanh"),
    plain("log_sigmoid"),
    plain("identity"),
    plain("dropout", options=DROPOUT),
    plain("alpha_dropout", options=DROPOUT),
    LayerType("prelu", (Whole("count", aliases=("num_parameters",), default=1, words=("channels",)),), infer_prelu),
    LayerType("softmax", (DIM,), partial(infer_softmax, "softmax")),
    LayerType("log_softmax", (DIM,), partial(infer_softmax, "log_softmax")),
    LayerType(
        "flatten",
        (
            Whole("start_dim", default=1, low=-MAX_DIMENSIONS, high=MAX_DIMENSIONS),
            Whole("end_dim", default=-1, low=-MAX_DIMENSIONS, high=MAX_DIMENSIONS),
        ),
        infer_flatten,
    ),
    LayerType(
        "reshape",
        (Wholes("shape", low=-1, length=MAX_DIMENSIONS), Flag("channels_first")),
        infer_reshape,
        ("view",),
    ),
    LayerType(
        "unflatten",
        (FIRST_DIM, Wholes("sizes", aliases=("unflattened_size", "shape"), low=-1, length=MAX_DIMENSIONS)),
        infer_unflatten,
    ),
    LayerType(
        "permute",
        (Wholes("dims", low=-MAX_DIMENSIONS, high=MAX_DIMENSIONS, length=MAX_DIMENSIONS),),
        infer_permute,
    ),
    LayerType(
        "transpose",
        (
            Whole("dim0", default=1, low=-MAX_DIMENSIONS, high=MAX_DIMENSIONS),
            Whole("dim1", default=2, low=-MAX_DIMENSIONS, high=MAX_DIMENSIONS),
        ),
        infer_transpose,
    ),
    LayerType("unsqueeze", (FIRST_DIM,), infer_unsqueeze),
    LayerType("squeeze", (DIM,), infer_squeeze),
    LayerType("mean", (DIM,), partial(infer_mean, "mean"), ("mean_over_time",)),
    LayerType("max", (DIM,), partial(infer_mean, "max"), ("max_over_time",)),
)
