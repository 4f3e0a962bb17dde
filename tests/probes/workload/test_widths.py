"""A network made wider is the same network: what goes in and what comes out stays."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.workload.catalogue import list_models
from probes.workload.description import InvalidModel, ModelDescription, Workload
from probes.workload.models import parse_model
from probes.workload.widths import widen

LAYERED = [row for row in list_models() if row.description.kind == "layers"]


def sizes(model: ModelDescription, name: str = "out") -> list[int]:
    return [layer[name] for layer in model.content["layers"] if name in layer]


def inner_sizes(layers: list[dict[str, Any]]) -> int:
    """All of them, at any depth, summed."""
    return sum(
        inner_sizes(layer["layers"]) if "layers" in layer else layer.get("in", 0) + layer.get("hidden", 0)
        for layer in layers
    )


def test_inner_sizes_grow_and_the_last_layer_keeps_its_classes() -> None:
    model = parse_model(
        {"layers": [{"type": "linear", "out": 10}, "relu", {"type": "linear", "out": 20}, {"type": "linear", "out": 3}],
         "input_shape": [4]}
    )  # fmt: skip
    wider = widen(model, 2)
    assert sizes(wider) == [20, 40, 3]
    assert wider.content["input_shape"] == [4]
    assert wider.content["output_shape"] == [3]
    assert sizes(widen(model, 0.01)) == [1, 1, 3]
    assert widen(model, 1) is model


def test_depthwise_convolutions_grow_with_their_channels() -> None:
    layers = [
        {"type": "conv2d", "out": 8, "kernel": 3},
        {"type": "conv2d", "out": 8, "kernel": 3, "groups": 8},
        {"type": "batch_norm2d"},
        "flatten",
        {"type": "linear", "out": 5},
    ]
    wider = widen(parse_model({"layers": layers, "input_shape": [3, 16, 16]}), 2)
    assert [layer.get("groups") for layer in wider.content["layers"][:2]] == [1, 16]
    assert sizes(wider) == [16, 16, 5]


def test_weights_for_channels_grow_where_the_channels_do() -> None:
    layers = [
        {"type": "prelu", "count": 3},
        {"type": "conv2d", "out": 8, "kernel": 3},
        {"type": "prelu", "count": 8},
        "flatten",
        {"type": "linear", "out": 5},
        {"type": "prelu", "count": 5},
    ]
    wider = widen(parse_model({"layers": layers, "input_shape": [3, 16, 16]}), 2)
    assert sizes(wider, "count") == [3, 16, 5]


def test_weights_go_with_what_arrives_whatever_axis_that_is() -> None:
    steps = [{"type": "linear", "out": 6}, {"type": "prelu", "count": 5}, "flatten", {"type": "linear", "out": 2}]
    wider = widen(parse_model({"layers": steps, "input_shape": [5, 4]}), 2)
    assert sizes(wider, "count") == [5]
    conv = {"type": "conv2d", "out": 8, "kernel": 3}
    flat = [conv, "flatten", {"type": "prelu", "count": 8 * 14 * 14}, {"type": "linear", "out": 2}]
    wider = widen(parse_model({"layers": flat, "input_shape": [3, 16, 16]}), 0.3)
    assert sizes(wider, "count") == [2 * 14 * 14]


@pytest.mark.parametrize(
    ("change", "shape"),
    [
        ({"type": "reshape", "shape": [-1, 8]}, [8, 8]),
        ({"type": "view", "shape": [1, -1]}, [1, 64]),
        ({"type": "Unflatten", "dim": 1, "sizes": [4, -1]}, [4, 16]),
        ({"type": "unsqueeze", "dim": 1}, [1, 64]),
        ("unsqueeze", [1, 64]),
    ],
)
def test_a_shape_that_follows_from_what_comes_in_goes_with_it(change: Any, shape: list[int]) -> None:
    layers = [{"type": "linear", "out": 32}, {"type": "sequential", "layers": [change]}, "flatten"]
    model = parse_model({"layers": [*layers, {"type": "linear", "out": 3}], "input_shape": [16]})
    wider = widen(model, 2)
    assert wider.content["layers"][1]["layers"][0] == {"type": "reshape", "shape": shape}
    assert widen(wider, 0.5).content == model.content


def test_an_axis_that_is_dropped_leaves_the_channels_where_they_were() -> None:
    layers = [
        {"type": "conv2d", "out": 8, "kernel": [3, 4]},
        {"type": "squeeze", "dim": 3},
        "batch_norm1d",
        {"type": "conv1d", "out": 5, "kernel": 1},
        {"type": "unsqueeze", "dim": 3},
        {"type": "squeeze", "dim": -1},
    ]
    model = parse_model({"layers": layers, "input_shape": [3, 16, 4]})
    wider = widen(model, 2)
    assert wider.content["layers"][1]["shape"] == [16, 14]
    assert (model.content["class_axis"], wider.content["class_axis"]) == (1, 1)


def test_a_shape_that_is_written_out_does_not_fit_another_width() -> None:
    layers = [{"type": "linear", "out": 32}, {"type": "reshape", "shape": [4, 8]}, {"type": "linear", "out": 3}]
    with pytest.raises(InvalidModel, match=r"layers\[1\] .reshape. cannot make its shape of 64"):
        widen(parse_model({"layers": layers, "input_shape": [16]}), 2)


@pytest.mark.parametrize(
    ("layers", "shape", "factor"),
    [
        ([{"type": "linear", "out": 3}], [4], 2.0),
        ([{"type": "lstm", "hidden": 8}], [5, 4], 0.5),
        ([{"type": "linear", "out": 10}, "relu", {"type": "linear", "out": 3}], [4], 1.04),
    ],
)
def test_a_width_that_changes_no_size_is_refused(layers: list[Any], shape: list[int], factor: float) -> None:
    with pytest.raises(InvalidModel, match="This width leaves every size of these layers as it is"):
        widen(parse_model({"layers": layers, "input_shape": shape}), factor)


def test_what_a_width_breaks_is_said_of_the_width() -> None:
    inside = [{"type": "linear", "out": 64}, "relu", {"type": "linear", "out": 64}]
    layers = [{"type": "linear", "out": 64}, {"type": "residual", "layers": inside}]
    with pytest.raises(InvalidModel, match=r"^This width does not work out, at which the last .* outputs: lay"):
        widen(parse_model({"layers": layers, "input_shape": [8]}), 2.0)


def test_what_was_written_is_no_part_of_what_a_model_is() -> None:
    layers = [{"type": "linear", "out": 32}, {"type": "reshape", "shape": [4, -1]}, {"type": "linear", "out": 3}]
    model = parse_model({"layers": layers, "input_shape": [16]})
    same = ModelDescription.from_json(model.to_json())
    assert same == model
    assert (same.key, same.written) == (model.key, None)
    assert "written" not in Workload(model, 8).to_json()["model"]


def test_a_vocabulary_is_no_width() -> None:
    layers = [
        {"type": "embedding", "in": 1000, "out": 16},
        {"type": "lstm", "hidden": 32, "output": "last"},
        {"type": "linear", "out": 2},
    ]
    wider = widen(parse_model({"layers": layers, "input_shape": [12]}), 4)
    embedding, lstm, linear = wider.content["layers"]
    assert (embedding["in"], embedding["out"], lstm["hidden"], linear["in"], linear["out"]) == (1000, 64, 128, 128, 2)


def test_an_encoder_grows_where_its_heads_divide_and_is_refused_with_a_sentence_where_not() -> None:
    layers = [
        {"type": "linear", "out": 12},
        {"type": "transformer_encoder_layer", "heads": 4, "feedforward": 20},
        {"type": "linear", "out": 2},
    ]
    model = parse_model({"layers": layers, "input_shape": [6, 3]})
    wider = widen(model, 2)
    assert wider.content["layers"][1]["in"] == 24
    assert wider.content["layers"][1]["feedforward"] == 40
    with pytest.raises(InvalidModel, match="must divide"):
        widen(model, 0.5)


@pytest.mark.parametrize("row", LAYERED, ids=lambda row: row.name)
@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_the_catalogues_networks_can_be_made_wider(row: object, factor: float) -> None:
    model = row.description  # type: ignore[attr-defined]
    wider = widen(model, factor)
    assert wider.content["output_shape"] == model.content["output_shape"]
    before, after = (inner_sizes(each.content["layers"]) for each in (model, wider))
    assert (after > before) is (factor > 1)


@given(st.floats(0.001, 1000))
def test_a_summary_grows_with_the_square(factor: float) -> None:
    totals = {"parameters": 10**6, "flops_per_sample": 10**9, "activation_bytes_per_sample": 10**6, "operations": 50}
    wider = widen(parse_model({"summary": totals}), factor).content
    assert wider["operations"] == 50
    assert wider["parameters"] == pytest.approx(max(10**6 * factor**2, 1), rel=0.6)


def test_what_is_not_made_of_layers_is_refused_with_a_sentence() -> None:
    with pytest.raises(InvalidModel, match="by its layers"):
        widen(parse_model("bert-base"), 2)
    for factor in (0.0, -1.0, 1e9, float("nan")):
        with pytest.raises(InvalidModel, match="width"):
            widen(parse_model("iris-mlp"), factor)


@pytest.mark.parametrize("factor", [2, 4])
def test_a_group_for_each_channel_of_the_input_is_as_many_as_before(factor: int) -> None:
    """As in a network over the channels of an EEG: the input has as many as before."""
    layers = [
        {"type": "conv1d", "out": 16, "kernel": 5, "groups": 8},
        {"type": "conv1d", "out": 16, "kernel": 5, "groups": 16},
        "flatten",
        {"type": "linear", "out": 3},
    ]
    wider = widen(parse_model({"layers": layers, "input_shape": [8, 100]}), factor)
    assert [layer["groups"] for layer in wider.content["layers"][:2]] == [8, 16 * factor]
    assert sizes(wider) == [16 * factor, 16 * factor, 3]


@pytest.mark.parametrize("layer", [{"type": "lstm", "in": 7, "hidden": 6}, {"type": "linear", "in": 7, "out": 6}])
def test_an_axis_that_was_said_to_be_meant_is_meant_at_another_width(layer: dict[str, Any]) -> None:
    """A convolution's length, whose features would else be asked for."""
    conv = {"type": "conv1d", "out": 4, "kernel": 3}
    model = parse_model({"layers": [conv, layer, "flatten", {"type": "linear", "out": 2}], "input_shape": [2, 9]})
    assert widen(model, 2.0).content["layers"][1]["in"] == 7
