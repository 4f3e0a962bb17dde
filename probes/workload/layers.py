"""A model written as a list of layers: checked, with every size spelled out.

Pure arithmetic: the shape that leaves each layer and its parameters are known before torch is asked for anything.
"""

from __future__ import annotations

from typing import Any

from probes.bounds import MAX_DIMENSION, MAX_DIMENSIONS, MAX_LAYER_NESTING, MAX_LAYERS, MAX_PARAMETERS
from probes.workload.description import InvalidModel
from probes.workload.flow import Flow, check_shape
from probes.workload.layer_types import Layer, LayerType, index_by_spelling, spelling
from probes.workload.layers_plain import PLAIN_TYPES
from probes.workload.layers_sequence import SEQUENCE_TYPES
from probes.workload.layers_spatial import SPATIAL_TYPES
from probes.workload.options import read_options, whole
from probes.workload.wording import describe, join, kind_of, near_names, unknown

LAYER_TYPES: tuple[LayerType, ...] = (*PLAIN_TYPES, *SPATIAL_TYPES, *SEQUENCE_TYPES)
_BY_SPELLING = index_by_spelling(LAYER_TYPES)
_NESTED = ("residual", "sequential")  # layers made of layers: they have no row in the table
_NAMES = (*(kind.name for kind in LAYER_TYPES), *_NESTED)
_SPELLINGS = {**{key: kind.name for key, kind in _BY_SPELLING.items()}, **{name: name for name in _NESTED}}
LOSSES = ("cross-entropy", "mse")
_EXAMPLE = '{"layers": [{"type": "linear", "in": 4, "out": 3}], "input_shape": [4]}'


def parse_layers(document: dict[str, Any], *, trusted: bool = False) -> tuple[dict[str, Any], int]:
    """Canonical content of a `layers` model, and its trainable scalars. Raises InvalidModel.

    trusted: which axis a layer takes is not doubted (probes.workload.axes).

    Content: `layers` (every size spelled out), `input_shape` (without the batch), `tokens` (the size of the
    vocabulary where whole numbers go in, else null), `loss`, `output_shape`, `class_axis` (where the classes lie,
    counted with the batch at 0).
    """
    _check_keys(document)
    layers = document.get("layers")
    if not isinstance(layers, list) or not layers:
        raise InvalidModel(f'"layers" {_no_list(layers)}; a list of at least one layer is expected, as in {_EXAMPLE}.')
    flow = Flow(_input_shape(document, layers), tokens=_type_of(_first(layers)) == "embedding", trusted=trusted)
    chain = _chain("layers", layers, flow, 0)
    if not chain.parameters:
        raise InvalidModel('The layers have nothing to train. Put in at least one with weights, such as "linear".')
    if chain.parameters > MAX_PARAMETERS:
        raise InvalidModel(f"The layers have more than {MAX_PARAMETERS:.0e} parameters. Make them smaller.")
    tokens = _first(chain.content["layers"])["in"] if flow.tokens else None
    content = {"layers": chain.content["layers"], "input_shape": list(flow.shape), "tokens": tokens}
    return content | _loss(document, chain.flow), chain.parameters


def _no_list(layers: Any) -> str:
    """What is wrong with it."""
    return "has no layer in it" if layers == [] else f"is {describe(layers)}"


def _check_keys(document: dict[str, Any]) -> None:
    known = ("layers", "input_shape", "loss")
    for key in document:
        if key not in known:
            raise unknown("The option", key, known, f"Beside layers a model takes {join(known[1:])}.")


def _input_shape(document: dict[str, Any], layers: list[Any]) -> tuple[int, ...]:
    written = document.get("input_shape")
    if written is None:
        return (_input_size(layers),)
    sizes = written if isinstance(written, list) else [written]
    if not 1 <= len(sizes) <= MAX_DIMENSIONS:
        raise InvalidModel(
            f'"input_shape" has {len(sizes)} sizes; 1 to {MAX_DIMENSIONS}, without the batch, are expected.'
        )
    shape = tuple(whole(f"input_shape[{i}]", size, 1, MAX_DIMENSION) for i, size in enumerate(sizes))
    check_shape("input_shape", shape)
    return shape


def _input_size(layers: list[Any]) -> int:
    """The input of a model that begins with a linear layer is what that layer takes."""
    place, first = _first_at(layers)
    kind = _type_of(first)
    if kind is None:
        _checked(place, first)  # which says what is wrong with it, before its input is asked for
    if kind == "linear":
        sizes = read_options(f"{place} (linear)", _BY_SPELLING["linear"].options, _without_type(first))
        if "in" in sizes:
            size: int = sizes["in"]
            return size
    example = {"embedding": "[128] for 128 tokens", "linear": "[4] for 4 numbers"}.get(
        kind or "", "[3, 224, 224] for an image"
    )
    raise InvalidModel(f'"input_shape" is missing: write the shape of one sample without the batch, such as {example}.')


def _first(layers: list[Any]) -> Any:
    """What the input goes into: of layers that begin with a sequence of layers, the first of that."""
    return _first_at(layers)[1]


def _first_at(layers: list[Any]) -> tuple[str, Any]:
    """With its place."""
    place, first = "layers[0]", layers[0]
    for _ in range(MAX_LAYER_NESTING):
        within = first.get("layers") if _type_of(first) == "sequential" and isinstance(first, dict) else None
        if not isinstance(within, list) or not within:
            break
        place, first = f"{place}.layers[0]", within[0]
    return place, first


def _type_of(layer: Any) -> str | None:
    name = layer.get("type") if isinstance(layer, dict) else layer
    return _SPELLINGS.get(spelling(name)) if isinstance(name, str) and len(name) < 100 else None


def _chain(where: str, layers: Any, flow: Flow, depth: int) -> Layer:
    """Layers one after another, as one. Raises InvalidModel."""
    if not isinstance(layers, list) or not layers:
        raise InvalidModel(f"{where} {_no_list(layers)}; a list of at least one layer is expected.")
    contents: list[dict[str, Any]] = []
    parameters, count = 0, 0
    for index, written in enumerate(layers):
        _check_count(where, count + len(layers) - index)
        layer = _layer(f"{where}[{index}]", written, flow, depth)
        contents.append(layer.content)
        flow, parameters, count = layer.flow, parameters + layer.parameters, count + layer.count
    _check_count(where, count)
    return Layer({"layers": contents}, flow, parameters, count)


def _check_count(where: str, count: int) -> None:
    if count > MAX_LAYERS:
        raise InvalidModel(f"{where} holds more than {MAX_LAYERS} layers, which is the most that is taken.")


def _layer(place: str, written: Any, flow: Flow, depth: int) -> Layer:
    """One checked layer."""
    document, name = _checked(place, written)
    where = f"{place} ({name})"
    if name in _NESTED:
        return _nested(name, where, place, document, flow, depth)
    kind = _BY_SPELLING[spelling(name)]
    options = read_options(where, kind.options, _without_type(document))
    if flow.tokens and name != "embedding":
        raise InvalidModel(f"{where} cannot take whole numbers; put an embedding first.")
    return kind.infer(where, options, flow)


def _checked(place: str, written: Any) -> tuple[dict[str, Any], str]:
    """A layer as it is written, with its type. A bare string is a layer without options: "relu"."""
    document = {"type": written} if isinstance(written, str) else written
    if not isinstance(document, dict) or "type" not in document:
        got = kind_of(document) + (' without a "type"' if isinstance(document, dict) else "")
        raise InvalidModel(f'{place} is {got}; a layer is written as {{"type": "linear", "out": 10}}.')
    return document, _type_name(place, document["type"])


def _without_type(document: Any) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key != "type"} if isinstance(document, dict) else {}


def _type_name(place: str, written: Any) -> str:
    found = _SPELLINGS.get(spelling(written)) if isinstance(written, str) and len(written) < 100 else None
    if found is not None:
        return found
    raise _unknown_type(place, written)


def _unknown_type(place: str, written: Any) -> InvalidModel:
    if not isinstance(written, str):
        return InvalidModel(
            f'{place}: "type" is {describe(written)}; a layer type\'s name is expected, such as "linear".'
        )
    short = "" if len(written) >= 100 else spelling(written)
    suggestions = tuple(dict.fromkeys(_SPELLINGS[near] for near in near_names(short, _SPELLINGS)))
    hint = f"Did you mean {join(suggestions, 'or')}?" if suggestions else f"Known types are {join(_NAMES)}."
    return InvalidModel(f"{place}: the layer type {describe(written)} is not known. {hint}", suggestions)


def _nested(name: str, where: str, place: str, document: dict[str, Any], flow: Flow, depth: int) -> Layer:
    """`sequential`: layers as one; `residual`: the input is added to what comes out, so shapes must agree."""
    if depth >= MAX_LAYER_NESTING:
        raise InvalidModel(f"{where} lies more than {MAX_LAYER_NESTING} levels deep, which is the most that is taken.")
    extra = [key for key in document if key not in ("type", "layers")]
    if extra:
        raise unknown(f"{where}: the option", extra[0], ("layers",), 'It takes "layers" only.')
    inner = _chain(f"{place}.layers", document.get("layers"), flow, depth + 1)
    if name == "residual" and inner.flow.shape != flow.shape:
        raise InvalidModel(
            f"{where} adds its input ({flow.text}) to what its layers make ({inner.flow.text}); "
            "the two shapes must be equal. Change the last layer inside, or use sequential."
        )
    return Layer({"type": name, **inner.content}, inner.flow, inner.parameters, inner.count + 1)


def _loss(document: dict[str, Any], flow: Flow) -> dict[str, Any]:
    """Cross-entropy over the classes unless told otherwise, mean squared error where one number comes out."""
    axis = 1 if flow.channels_first or len(flow.shape) == 1 else len(flow.shape)
    classes = flow.shape[axis - 1]
    loss = document.get("loss")
    if loss is None:
        loss = "cross-entropy" if classes > 1 else "mse"
    name = loss.lower().replace("_", "-") if isinstance(loss, str) else loss
    if name not in LOSSES:
        raise unknown("The loss", loss, LOSSES, f"Write {join(LOSSES, 'or')}.")
    return {"loss": name, "output_shape": list(flow.shape), "class_axis": axis}
