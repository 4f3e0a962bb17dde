"""Layer types over space, channels first: convolutions, pooling, normalisation, upsampling."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

from probes.workload.axes import check_channels_first
from probes.workload.description import InvalidModel
from probes.workload.flow import Flow
from probes.workload.layer_types import Layer, LayerType, agree, require
from probes.workload.layers_plain import BIAS, DROPOUT, IN, INPLACE
from probes.workload.options import Choice, Flag, Real, Whole, Wholes

OUT = Whole("out", aliases=("out_channels", "filters"))
KERNEL = Wholes("kernel", aliases=("kernel_size",))
STRIDE = Wholes("stride", aliases=("strides",))
DILATION = Wholes("dilation", default=1)
GROUPS = Whole("groups", default=1)
EPS, MOMENTUM = Real("eps", default=1e-5), Real("momentum", default=0.1)  # torch's
RMS_EPS = Real("eps")  # without one torch takes that of the type of the numbers


def spatial(where: str, flow: Flow, axes: int) -> tuple[int, ...]:
    """The sizes behind the channels. Raises InvalidModel when the input has another number of axes."""
    if len(flow.shape) == axes + 1:
        return flow.shape[1:]
    sizes = ", ".join(("length", "height, width", "frames, height, width")[axes - 1].split(", "))
    advice = (
        f"Write input_shape as [channels, {sizes}]"
        if len(flow.shape) <= axes
        else "Reshape its input or use fewer axes"
    )
    raise InvalidModel(
        f"{where} expects channels and {axes} spatial {'axis' if axes == 1 else 'axes'}, but one sample is "
        f'{flow.text}. {advice}; {{"type": "reshape", "shape": […]}} changes a shape on the way.'
    )


def per_axis(where: str, name: str, value: Any, axes: int) -> list[int]:
    """One number an axis."""
    if not isinstance(value, list):
        return [value] * axes
    if len(value) not in (1, axes):
        raise InvalidModel(
            f'{where}: "{name}" has {len(value)} numbers; one, or one for each of {axes} axes, is expected.'
        )
    return value * (axes // len(value))


def window(size: int, kernel: int, stride: int, padding: int, dilation: int, *, ceil: bool = False) -> int:
    """How many windows fit (torch.nn.Conv2d and MaxPool2d, section Shape)."""
    reach = size + 2 * padding - dilation * (kernel - 1) - 1
    count = (-(-reach // stride) if ceil else reach // stride) + 1
    if ceil and (count - 1) * stride >= size + padding:  # the last window must start inside
        count -= 1
    return count


def infer_convolution(axes: int, where: str, options: dict[str, Any], flow: Flow) -> Layer:
    sizes = spatial(where, flow, axes)
    outputs = require(where, options, "out", '"out": 16')
    is_sequence = flow.features_last and options.get("in") == flow.shape[-1] and axes == 1
    hint = 'Its features lie in the last axis: put {"type": "transpose"} before it.' if is_sequence else ""
    inputs = agree(where, options, "in", flow.shape[0], flow, hint)
    check_channels_first(where, options, flow)
    kernel, stride, dilation = _geometry(where, options, axes)
    padding = _padding(where, options["padding"], stride, axes)
    groups = _groups(where, options["groups"], inputs, outputs)
    after = [
        size if padding == "same" else window(size, k, s, p, d)
        for size, k, s, p, d in zip(
            sizes, kernel, stride, [0] * axes if padding == "same" else padding, dilation, strict=True
        )
    ]
    _fits(where, flow, kernel, after)
    content = {
        "type": f"conv{axes}d",
        "in": inputs,
        "out": outputs,
        "kernel": kernel,
        "stride": stride,
        "padding": padding,
        "dilation": dilation,
        "groups": groups,
        "bias": options["bias"],
    }
    parameters = inputs // groups * outputs * prod(kernel) + outputs * options["bias"]
    return Layer(content, flow.reshaped(where, (outputs, *after), channels_first=True), parameters)


def infer_transposed(axes: int, where: str, options: dict[str, Any], flow: Flow) -> Layer:
    sizes = spatial(where, flow, axes)
    outputs = require(where, options, "out", '"out": 16')
    inputs = agree(where, options, "in", flow.shape[0], flow)
    check_channels_first(where, options, flow)
    kernel, stride, dilation = _geometry(where, options, axes)
    padding = per_axis(where, "padding", options["padding"], axes)
    extra = per_axis(where, "output_padding", options["output_padding"], axes)
    if any(e >= max(s, d) for e, s, d in zip(extra, stride, dilation, strict=True)):
        raise InvalidModel(f'{where}: "output_padding" must be smaller than "stride" or "dilation".')
    groups = _groups(where, options["groups"], inputs, outputs)
    after = [
        (size - 1) * s - 2 * p + d * (k - 1) + e + 1
        for size, k, s, p, d, e in zip(sizes, kernel, stride, padding, dilation, extra, strict=True)
    ]
    if any(size < 1 for size in after):
        raise InvalidModel(
            f"{where}: its padding cuts off all that it makes of {flow.text}. Take less padding or a larger kernel."
        )
    content = {"type": f"conv_transpose{axes}d", "in": inputs, "out": outputs, "kernel": kernel, "stride": stride}
    content |= {"padding": padding, "output_padding": extra, "dilation": dilation}
    content |= {"groups": groups, "bias": options["bias"]}
    parameters = inputs * (outputs // groups) * prod(kernel) + outputs * options["bias"]
    return Layer(content, flow.reshaped(where, (outputs, *after), channels_first=True), parameters)


def _geometry(where: str, options: dict[str, Any], axes: int) -> tuple[list[int], list[int], list[int]]:
    kernel = per_axis(where, "kernel", require(where, options, "kernel", '"kernel": 3'), axes)
    stride = per_axis(where, "stride", options.get("stride", 1), axes)
    return kernel, stride, per_axis(where, "dilation", options["dilation"], axes)


def _padding(where: str, written: Any, stride: list[int], axes: int) -> Any:
    if written == "valid":
        return [0] * axes
    if written == "same" and any(step != 1 for step in stride):
        raise InvalidModel(
            f'{where}: "padding": "same" needs a stride of 1 (torch\'s rule). Write the padding as a number.'
        )
    return written if written == "same" else per_axis(where, "padding", written, axes)


def _groups(where: str, groups: int, inputs: int, outputs: int) -> int:
    if inputs % groups or outputs % groups:
        raise InvalidModel(
            f'{where}: "groups": {groups} must divide its input channels ({inputs}) and "out" ({outputs}).'
        )
    return groups


def _fits(where: str, flow: Flow, kernel: list[int], after: list[int]) -> None:
    if any(size < 1 for size in after):
        raise InvalidModel(
            f"{where}: a kernel of {Flow(tuple(kernel)).text} does not fit into {flow.text}. "
            "Take a smaller kernel, more padding, or fewer pooling layers before it."
        )


def infer_pool(name: str, axes: int, where: str, options: dict[str, Any], flow: Flow) -> Layer:
    sizes = spatial(where, flow, axes)
    check_channels_first(where, options, flow, takes_in=False)
    kernel = per_axis(where, "kernel", require(where, options, "kernel", '"kernel": 2'), axes)
    stride = per_axis(where, "stride", options.get("stride", kernel), axes)
    padding = per_axis(where, "padding", options["padding"], axes)
    dilation = per_axis(where, "dilation", options.get("dilation", 1), axes)
    if any(2 * p > k for p, k in zip(padding, kernel, strict=True)):
        raise InvalidModel(f'{where}: "padding" may be at most half of "kernel" (torch\'s rule).')
    ceil = options["ceil_mode"]
    after = [
        window(size, k, s, p, d, ceil=ceil)
        for size, k, s, p, d in zip(sizes, kernel, stride, padding, dilation, strict=True)
    ]
    _fits(where, flow, kernel, after)
    content = {"type": f"{name}{axes}d", "kernel": kernel, "stride": stride, "padding": padding, "ceil_mode": ceil}
    if name == "max_pool":
        content["dilation"] = dilation
    return Layer(content, flow.reshaped(where, (flow.shape[0], *after)))


def infer_adaptive(name: str, axes: int, where: str, options: dict[str, Any], flow: Flow) -> Layer:
    spatial(where, flow, axes)
    check_channels_first(where, options, flow, takes_in=False)
    after = per_axis(where, "out", options["out"], axes)
    return Layer({"type": f"{name}{axes}d", "out": after}, flow.reshaped(where, (flow.shape[0], *after)))


def infer_global(name: str, where: str, options: dict[str, Any], flow: Flow) -> Layer:
    """Channels stay, or a sequence's features; every other axis becomes its mean or maximum."""
    if len(flow.shape) < 2:
        raise InvalidModel(f"{where} expects channels and at least one more axis, but its input is {flow.text}.")
    if flow.features_last and len(flow.shape) == 2:
        steps = {"type": "mean" if name == "global_avg_pool" else "max", "dim": 1}
        return Layer(steps, flow.reshaped(where, flow.shape[-1:]))
    return Layer({"type": name}, flow.reshaped(where, flow.shape[:1], channels_first=True))


def _own_numbers(options: dict[str, Any], *numbers: Real) -> dict[str, float]:
    """Those of a normalisation that are not what torch takes without them: a model that writes torch's own is the same
    model as one that writes none."""
    return {each.name: options[each.name] for each in numbers if options.get(each.name) != each.default}


def infer_batch_norm(name: str, axes: int, where: str, options: dict[str, Any], flow: Flow) -> Layer:
    """axes: spatial axes as the type's name says them; 0: whatever arrives."""
    found = max(len(flow.shape) - 1, 1)
    if len(flow.shape) > 4 or (axes and found != axes):
        raise InvalidModel(
            f"{where} does not fit {flow.text} for one sample. "
            'Write "batch_norm" without a number: it follows its input.'
        )
    features = agree(where, options, "in", flow.shape[0], flow)
    check_channels_first(where, options, flow)
    affine = options["affine"]
    content = {"type": f"{name}{found}d", "in": features, "affine": affine} | _own_numbers(options, EPS, MOMENTUM)
    after = flow if len(flow.shape) == 1 else flow.reshaped(where, flow.shape, channels_first=True)
    return Layer(content, after, 2 * features * affine)


def infer_instance_norm(axes: int, where: str, options: dict[str, Any], flow: Flow) -> Layer:
    """axes: as in infer_batch_norm. A channel of one number has no spread to be normalised by."""
    found = len(flow.shape) - 1
    if not 1 <= found <= 3 or (axes and found != axes) or flow.elements == flow.shape[0]:
        raise InvalidModel(
            f"{where} does not fit {flow.text} for one sample: it expects channels and "
            f"{axes or '1 to 3'} spatial axes with more than one number."
        )
    features = agree(where, options, "in", flow.shape[0], flow)
    check_channels_first(where, options, flow)
    affine = options["affine"]
    content = {"type": f"instance_norm{found}d", "in": features, "affine": affine}
    content |= _own_numbers(options, EPS, MOMENTUM)
    after = flow.reshaped(where, flow.shape, channels_first=True)
    return Layer(content, after, 2 * features * affine)


def infer_layer_norm(name: str, where: str, options: dict[str, Any], flow: Flow) -> Layer:
    """layer_norm, or rms_norm, which has weights and no bias."""
    if "shape" not in options and flow.channels_first and len(flow.shape) > 1 and not flow.trusted:
        raise InvalidModel(
            f"{where} would normalise the last axis, {flow.shape[-1]} numbers, but one sample is {flow.text}, with its "
            f'channels in the first. Write "shape": {list(flow.shape)} to normalise all of a sample, or "shape": '
            f"{flow.shape[-1]} if the last axis is meant."
        )
    written = options.get("shape", flow.shape[-1])
    shape = written if isinstance(written, list) else [written]
    if tuple(shape) != flow.shape[len(flow.shape) - len(shape) :]:
        raise InvalidModel(
            f"{where} normalises {Flow(tuple(shape)).text}, but its input for one sample ends otherwise: {flow.text}. "
            'Leave "shape" out to normalise the last axis.'
        )
    content = {"type": name, "shape": shape} | _own_numbers(options, EPS if name == "layer_norm" else RMS_EPS)
    return Layer(content, flow, (2 if name == "layer_norm" else 1) * prod(shape))


def infer_group_norm(where: str, options: dict[str, Any], flow: Flow) -> Layer:
    groups = require(where, options, "groups", '"groups": 8')
    channels = agree(where, options, "in", flow.shape[0], flow)
    check_channels_first(where, options, flow)
    if channels % groups:
        raise InvalidModel(f'{where}: "groups": {groups} must divide its {channels} channels.')
    if groups == flow.elements:
        raise InvalidModel(
            f"{where} has a group for each number of {flow.text} for one sample, which has no spread to be normalised "
            "by. Take fewer groups."
        )
    content = {"type": "group_norm", "groups": groups, "in": channels} | _own_numbers(options, EPS)
    return Layer(content, flow, 2 * channels)


def infer_dropout(axes: int, where: str, options: dict[str, Any], flow: Flow) -> Layer:
    """Drops whole channels. axes: spatial axes as the type's name says them; 0: whatever arrives. torch takes another
    number with a warning, and drops whole samples then, or single numbers."""
    found = len(flow.shape) - 1
    if not 1 <= found <= 3 or (axes and found != axes):
        raise InvalidModel(
            f"{where} drops whole channels, and does not fit {flow.text} for one sample: it expects channels and "
            f'{axes or "1 to 3"} spatial {"axis" if axes == 1 else "axes"}. Write "spatial_dropout", which follows its '
            'input, or "dropout" for single numbers.'
        )
    return Layer({"type": f"dropout{found}d", "p": options["p"]}, flow)


def infer_upsample(where: str, options: dict[str, Any], flow: Flow) -> Layer:
    if not 2 <= len(flow.shape) <= 4:
        raise InvalidModel(f"{where} expects channels and 1 to 3 spatial axes, but its input is {flow.text}.")
    check_channels_first(where, options, flow, takes_in=False)
    mode = options["mode"]
    if mode == "bilinear" and len(flow.shape) != 3:
        raise InvalidModel(f'{where}: "bilinear" needs height and width, but its input is {flow.text}. Use "nearest".')
    shape = (flow.shape[0], *(size * options["scale"] for size in flow.shape[1:]))
    return Layer({"type": "upsample", "scale": options["scale"], "mode": mode}, flow.reshaped(where, shape))


_CONVOLUTION = (
    IN,
    OUT,
    KERNEL,
    STRIDE,
    Wholes("padding", default=0, low=0, words=("same", "valid")),
    DILATION,
    GROUPS,
    BIAS,
)
_TRANSPOSED = (
    IN,
    OUT,
    KERNEL,
    STRIDE,
    Wholes("padding", default=0, low=0),
    Wholes("output_padding", default=0, low=0),
    DILATION,
    GROUPS,
    BIAS,
)


def _of_each_rank(*names: str) -> tuple[str, ...]:
    return tuple(f"{name}{n}d" for name in names for n in (1, 2, 3))


_POOL = (KERNEL, STRIDE, Wholes("padding", default=0, low=0), Flag("ceil_mode", default=False))
_ADAPTIVE = (Wholes("out", aliases=("output_size",), default=1),)
_BATCH_NORM = (IN, Flag("affine", default=True), EPS, MOMENTUM)
_INSTANCE_NORM = (IN, Flag("affine", default=False), EPS, MOMENTUM)
_DROPOUT = (*DROPOUT, INPLACE)
_SHAPE = Wholes("shape", aliases=("normalized_shape", "in"), length=6)
_LAYER_NORM = (_SHAPE, EPS)
_RMS_NORM = (_SHAPE, RMS_EPS)

SPATIAL_TYPES = (
    *(LayerType(f"conv{n}d", _CONVOLUTION, partial(infer_convolution, n)) for n in (1, 2, 3)),
    *(LayerType(f"conv_transpose{n}d", _TRANSPOSED, partial(infer_transposed, n)) for n in (1, 2, 3)),
    *(LayerType(f"max_pool{n}d", (*_POOL, DILATION), partial(infer_pool, "max_pool", n)) for n in (1, 2, 3)),
    *(LayerType(f"avg_pool{n}d", _POOL, partial(infer_pool, "avg_pool", n)) for n in (1, 2, 3)),
    *(
        LayerType(f"{name}{n}d", _ADAPTIVE, partial(infer_adaptive, name, n))
        for name in ("adaptive_avg_pool", "adaptive_max_pool")
        for n in (1, 2, 3)
    ),
    LayerType(
        "global_avg_pool",
        (),
        partial(infer_global, "global_avg_pool"),
        ("global_average_pool", *_of_each_rank("global_avg_pool", "global_average_pooling")),
    ),
    LayerType(
        "global_max_pool",
        (),
        partial(infer_global, "global_max_pool"),
        _of_each_rank("global_max_pool", "global_max_pooling"),
    ),
    LayerType("batch_norm", _BATCH_NORM, partial(infer_batch_norm, "batch_norm", 0), ("batch_normalization",)),
    *(LayerType(f"batch_norm{n}d", _BATCH_NORM, partial(infer_batch_norm, "batch_norm", n)) for n in (1, 2, 3)),
    LayerType("instance_norm", _INSTANCE_NORM, partial(infer_instance_norm, 0), ("instance_normalization",)),
    *(LayerType(f"instance_norm{n}d", _INSTANCE_NORM, partial(infer_instance_norm, n)) for n in (1, 2, 3)),
    LayerType("layer_norm", _LAYER_NORM, partial(infer_layer_norm, "layer_norm")),
    LayerType("rms_norm", _RMS_NORM, partial(infer_layer_norm, "rms_norm")),
    LayerType(
        "group_norm",
        (Whole("groups", aliases=("num_groups",)), Whole("in", aliases=("num_channels",)), EPS),
        infer_group_norm,
    ),
    LayerType("spatial_dropout", _DROPOUT, partial(infer_dropout, 0)),
    *(LayerType(f"dropout{n}d", _DROPOUT, partial(infer_dropout, n), (f"spatial_dropout{n}d",)) for n in (1, 2, 3)),
    LayerType(
        "upsample",
        (
            Whole("scale", aliases=("scale_factor",), default=2, high=64),
            Choice("mode", default="nearest", among=("nearest", "bilinear")),
        ),
        infer_upsample,
    ),
)
