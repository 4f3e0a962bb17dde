"""The same network wider or narrower: every inner size times a factor, what goes in and what comes out as it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from probes import bounds
from probes.workload.description import InvalidModel, ModelDescription
from probes.workload.documents import parse_document

# What the sizes that flow between layers are called, and what follows from them and is inferred again.
INNER = ("out", "hidden", "feedforward")
INFERRED = ("in", "features", "steps")
WEIGHTED = ("linear", "conv", "embedding", "rnn", "gru", "lstm")
MOST_FACTOR = 1024.0


def widen(model: ModelDescription, factor: float) -> ModelDescription:
    """The model with its inner sizes times `factor`, rounded, 1 at least.

    Of a layer list: outputs of linear, convolutional and embedding layers, hidden sizes of recurrent ones, the inner
    size of encoders, and the groups of depthwise convolutions behind these; the last layer with weights keeps its
    outputs. Of a summary: activations by the factor, parameters and FLOPs by its square. Raises InvalidModel where that
    fits nowhere (heads that do not divide, a shape that is written out), and for one's own Python. A config's sizes are
    its class's to tell: that one is a job of the micro-training (probes.microtrain.building.huggingface_widths).
    """
    if not 1 / MOST_FACTOR <= factor <= MOST_FACTOR:
        raise InvalidModel(f"A width is a number from 1/{MOST_FACTOR:g} to {MOST_FACTOR:g}.")
    if factor == 1.0:
        return model
    if model.kind == "summary":
        return _renamed(parse_document({"summary": _widen_summary(model.content, factor)}), model, factor)
    if model.kind != "layers":
        raise InvalidModel(
            "One's own Python cannot be made wider: which of its sizes belong together is not known. Write a function "
            "for each width, or describe the network by its layers."
        )
    layers = _copied(model.content["layers"], model.written)
    last = _last_weighted(layers)
    grown = False  # whether what comes in is as much wider: the input itself is not
    for layer in _flat(layers):
        _widen_layer(layer, factor, after_grown=grown, keeps_output=layer is last)
        if layer["type"].startswith(WEIGHTED):
            grown = layer is not last
    document = {"layers": layers, "input_shape": model.content["input_shape"], "loss": model.content["loss"]}
    widened = _parsed(document)
    if widened.content == model.content:
        raise InvalidModel(
            "This width leaves every size of these layers as it is: the last layer with weights keeps its outputs, and "
            "the others' are rounded."
        )
    return _renamed(widened, model, factor)


def _parsed(document: dict[str, Any]) -> ModelDescription:
    """Raises InvalidModel, of the width: as it came in the network was right."""
    try:
        return parse_document(document, trusted=True)
    except InvalidModel as error:
        raise InvalidModel(
            f"This width does not work out, at which the last layer with weights keeps its outputs: {error}"
        ) from error


def _renamed(widened: ModelDescription, model: ModelDescription, factor: float) -> ModelDescription:
    return replace(widened, name=f"{model.name} x {factor:g}")


def _widen_summary(content: dict[str, Any], factor: float) -> dict[str, Any]:
    powers = {"parameters": 2, "flops_per_sample": 2, "activation_bytes_per_sample": 1}
    return {name: _times(value, factor ** powers.get(name, 0)) for name, value in content.items()}


def _copied(layers: list[dict[str, Any]], written: Sequence[Any] | None) -> list[dict[str, Any]]:
    """Changes of shape as they were written, where that is known: their sizes may follow from what comes in."""
    return [_copy(layer, None if written is None else written[place]) for place, layer in enumerate(layers)]


def _copy(layer: dict[str, Any], written: Any) -> dict[str, Any]:
    if "layers" in layer:
        return {**layer, "layers": _copied(layer["layers"], None if written is None else written["layers"])}
    if layer["type"] != "reshape" or written is None:
        return dict(layer)
    return dict(written) if isinstance(written, dict) else {"type": written}


def _flat(layers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every layer that holds none, in order."""
    return [each for layer in layers for each in (_flat(layer["layers"]) if "layers" in layer else [layer])]


def _last_weighted(layers: list[dict[str, Any]]) -> dict[str, Any] | None:
    weighted = [layer for layer in _flat(layers) if layer["type"].startswith(WEIGHTED)]
    return weighted[-1] if weighted else None


def _widen_layer(layer: dict[str, Any], factor: float, *, after_grown: bool, keeps_output: bool) -> None:
    """after_grown: what comes in has other channels than before, so that a group for each of them goes with it."""
    depthwise = layer.get("groups", 1) > 1 and layer.get("groups") == layer.get("in")
    if depthwise and after_grown:
        layer["groups"] = _times(layer["groups"], factor)
    if layer["type"].startswith(WEIGHTED) or "feedforward" in layer:
        for name in INNER:
            if isinstance(layer.get(name), int) and not keeps_output:
                layer[name] = _times(layer[name], factor)
    if layer["type"] == "prelu" and layer["count"] > 1:
        layer["count"] = "channels"
    for name in INFERRED:
        if not (name == "in" and layer["type"] == "embedding"):  # a vocabulary is no width
            layer.pop(name, None)
    if layer["type"] in ("layer_norm", "rms_norm") and len(layer.get("shape", ())) == 1:
        del layer["shape"]


def _times(size: float, factor: float) -> int:
    return max(1, min(round(size * factor), bounds.MAX_PARAMETERS * 10**6))
