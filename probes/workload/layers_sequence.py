"""Layer types over sequences, time before features: embedding, recurrent layers, attention."""

from __future__ import annotations

from functools import partial
from typing import Any

from probes.bounds import MAX_RECURRENT_STEPS, MAX_STACKED_LAYERS
from probes.workload.axes import check_features_last
from probes.workload.description import InvalidModel
from probes.workload.flow import Flow
from probes.workload.layer_types import Layer, LayerType, agree, require
from probes.workload.layers_plain import BIAS, IN
from probes.workload.options import Choice, Flag, Option, Real, Whole

GATES = {"rnn": 1, "gru": 3, "lstm": 4}


def infer_embedding(where: str, options: dict[str, Any], flow: Flow) -> Layer:
    rows = require(where, options, "in", '"in": 10000 (the vocabulary)')
    features = require(where, options, "out", '"out": 128')
    if not flow.tokens:
        raise InvalidModel(
            f"{where} looks whole numbers up, so it can only be the first layer; here arrive the outputs of others."
        )
    content = {"type": "embedding", "in": rows, "out": features}
    after = flow.reshaped(where, (*flow.shape, features), channels_first=False, features_last=True)
    return Layer(content, after, rows * features)


def infer_position(where: str, options: dict[str, Any], flow: Flow) -> Layer:
    """A learned vector for each position, added to what arrives."""
    steps, features = _sequence(where, options, flow, takes_in=False)
    after = flow.reshaped(where, flow.shape, channels_first=False, features_last=True)
    return Layer({"type": "position_embedding", "steps": steps, "features": features}, after, steps * features)


def _sequence(where: str, options: dict[str, Any], flow: Flow, *, takes_in: bool = True) -> tuple[int, int]:
    """Steps and features. Raises InvalidModel when no sequence arrives."""
    if len(flow.shape) == 2:
        check_features_last(where, options, flow, takes_in=takes_in)
        steps, features = flow.shape
        return steps, features
    raise InvalidModel(
        f"{where} expects a sequence, [steps, features] for one sample, but {flow.text} arrives. "
        + (
            "Flatten the spatial axes and permute, so that the features come last."
            if len(flow.shape) > 2
            else 'Write input_shape as [steps, features], or put {"type": "unsqueeze", "dim": 1} before it.'
        )
    )


def infer_recurrent(name: str, where: str, options: dict[str, Any], flow: Flow) -> Layer:
    steps, features = _sequence(where, options, flow)
    hidden = require(where, options, "hidden", '"hidden": 128')
    inputs = agree(where, options, "in", features, flow)
    if steps > MAX_RECURRENT_STEPS:
        raise InvalidModel(
            f"{where} would run {steps} steps one after another; at most {MAX_RECURRENT_STEPS} are taken."
        )
    directions, stacked = 1 + options["bidirectional"], options["num_layers"]
    content = {"type": name, "in": inputs, **{key: options[key] for key in _KEPT if key in options}}
    shape = (directions * hidden,) if options["output"] == "last" else (steps, directions * hidden)
    parameters = recurrent_parameters(GATES[name], inputs, hidden, stacked, directions, bias=options["bias"])
    after = flow.reshaped(where, shape, channels_first=False, features_last=True)
    return Layer(content, after, parameters)


_KEPT = ("hidden", "num_layers", "bidirectional", "dropout", "bias", "output", "nonlinearity")


def recurrent_parameters(gates: int, inputs: int, hidden: int, stacked: int, directions: int, *, bias: bool) -> int:
    """Trainable scalars of torch.nn.LSTM, GRU or RNN: two weights, and with bias two vectors, a gate and direction."""
    first = inputs * hidden + hidden * hidden + 2 * hidden * bias
    further = directions * hidden * hidden + hidden * hidden + 2 * hidden * bias
    return gates * directions * (first + (stacked - 1) * further)


def infer_attention(where: str, options: dict[str, Any], flow: Flow) -> Layer:
    _, features = _sequence(where, options, flow)
    heads = _heads(where, options, flow)
    content = {"type": "attention", "in": features, "heads": heads}
    content |= {"dropout": options["dropout"], "bias": options["bias"]}
    after = flow.reshaped(where, flow.shape, channels_first=False, features_last=True)
    return Layer(content, after, _attention_parameters(features, bias=options["bias"]))


def infer_encoder(where: str, options: dict[str, Any], flow: Flow) -> Layer:
    """torch.nn.TransformerEncoderLayer, `num_layers` of them: attention, two linear layers, two norms."""
    _, features = _sequence(where, options, flow)
    heads, inner = _heads(where, options, flow), options["feedforward"]
    content = {"type": "transformer_encoder_layer", "in": features, "heads": heads, "feedforward": inner}
    content |= {key: options[key] for key in ("dropout", "activation", "norm_first", "num_layers")}
    parameters = _attention_parameters(features, bias=True) + 2 * features * inner + inner + features + 4 * features
    stacked = options["num_layers"]
    return Layer(
        content,
        flow.reshaped(where, flow.shape, channels_first=False, features_last=True),
        stacked * parameters,
        stacked,
    )


def _attention_parameters(features: int, *, bias: bool) -> int:
    return 4 * features * features + 4 * features * bias


def _heads(where: str, options: dict[str, Any], flow: Flow) -> int:
    features = agree(where, options, "in", flow.shape[-1], flow)
    heads: int = require(where, options, "heads", '"heads": 4')
    if features % heads:
        raise InvalidModel(f'{where}: "heads": {heads} must divide its {features} features.')
    return heads


class _BatchFirst(Flag):
    """torch's spelling is accepted where it says what is always so here."""

    def read(self, where: str, value: Any) -> bool:
        if Flag.read(self, where, value):
            return True
        raise InvalidModel(f'{where}: "batch_first" is false, but here the batch always comes first. Leave it out.')


STACKED = Whole("num_layers", aliases=("layers",), default=1, high=MAX_STACKED_LAYERS)
_RECURRENT: tuple[Option, ...] = (
    IN,
    Whole("hidden", aliases=("hidden_size", "out", "units")),
    STACKED,
    Flag("bidirectional", default=False),
    Real("dropout", default=0.0, high=0.999),
    BIAS,
    Choice("output", aliases=("return",), default="sequence", among=("sequence", "last")),
    _BatchFirst("batch_first"),
)
_ATTENTION: tuple[Option, ...] = (
    Whole("in", aliases=("embed_dim", "d_model", "features", "dim")),
    Whole("heads", aliases=("num_heads", "nhead")),
    _BatchFirst("batch_first"),
)
_ENCODER: tuple[Option, ...] = (
    *_ATTENTION,
    Whole("feedforward", aliases=("dim_feedforward",), default=2048),
    Real("dropout", default=0.1, high=0.999),
    Choice("activation", default="relu", among=("relu", "gelu")),
    Flag("norm_first", default=False),
    STACKED,
)
_EMBEDDING = (
    Whole("in", aliases=("num_embeddings", "vocabulary", "vocab_size", "vocab")),
    Whole("out", aliases=("embedding_dim", "features", "dim")),
)

SEQUENCE_TYPES = (
    LayerType("embedding", _EMBEDDING, infer_embedding),
    LayerType("position_embedding", (), infer_position, ("positional_embedding", "positional_encoding")),
    LayerType("lstm", _RECURRENT, partial(infer_recurrent, "lstm")),
    LayerType("gru", _RECURRENT, partial(infer_recurrent, "gru")),
    LayerType(
        "rnn",
        (*_RECURRENT, Choice("nonlinearity", default="tanh", among=("tanh", "relu"))),
        partial(infer_recurrent, "rnn"),
    ),
    LayerType(
        "attention",
        (*_ATTENTION, Real("dropout", default=0.0, high=0.999), BIAS),
        infer_attention,
        ("multihead_attention", "self_attention", "multi_head_attention"),
    ),
    LayerType("transformer_encoder_layer", _ENCODER, infer_encoder, ("transformer_encoder", "encoder_layer")),
)
