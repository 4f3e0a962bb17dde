"""A layer that would take for its channels an axis in which these do not lie is refused, unless that is said to be
meant."""

from typing import Any

import pytest

from tests.probes.workload.test_layers import EMBEDDED, LINEAR, TURNED, parse, refusal

CONV = {"type": "conv1d", "out": 64, "kernel": 80, "stride": 16}
ENCODER = {"type": "transformer_encoder_layer", "heads": 8}


@pytest.mark.parametrize(
    "layer", [{"type": "lstm", "hidden": 8}, {"type": "gru", "hidden": 8}, {"type": "attention", "heads": 8}, ENCODER]
)
def test_what_reads_features_last_is_not_given_a_convolution_s_channels_first(layer: dict[str, Any]) -> None:
    """The usual network of speech and sensors ran 64 steps of 496 features in place of 496 of 64."""
    error = str(refusal(CONV, "relu", layer, LINEAR, shape=[1, 8000]))
    assert "features in the last axis" in error
    assert '{"type": "transpose"}' in error
    assert '"in": 496' in error
    turned = parse(CONV, "relu", TURNED, layer, LINEAR, shape=[1, 8000])["layers"][3]
    assert turned["in"] == 64
    assert parse(CONV, "relu", {**layer, "in": 496}, LINEAR, shape=[1, 8000])["layers"][2]["in"] == 496


def test_nor_is_a_learned_position_or_a_linear_layer_nor_a_norm_of_the_last_axis() -> None:
    assert "transpose" in str(refusal(CONV, "position_embedding", LINEAR, shape=[1, 8000]))
    image = {"type": "conv2d", "out": 16, "kernel": 3}
    forgotten = str(refusal(image, {"type": "linear", "out": 10}, shape=[3, 32, 32]))
    assert '{"type": "flatten"}' in forgotten
    assert '{"type": "permute", "dims": [2, 3, 1]}' in forgotten
    assert parse(image, {"type": "linear", "in": 30, "out": 10}, shape=[3, 32, 32])["layers"][1]["in"] == 30
    assert parse(image, "global_avg_pool", {"type": "linear", "out": 10}, shape=[3, 32, 32])["layers"][2]["in"] == 16
    assert '"shape": [16, 30, 30]' in str(refusal(image, "layer_norm", shape=[3, 32, 32]))
    assert parse(image, {"type": "layer_norm", "shape": 30}, shape=[3, 32, 32])["layers"][1]["shape"] == [30]


@pytest.mark.parametrize(
    "layer",
    [
        {"type": "conv1d", "out": 8, "kernel": 5},
        {"type": "conv_transpose1d", "out": 8, "kernel": 5},
        {"type": "max_pool1d", "kernel": 2},
        {"type": "avg_pool1d", "kernel": 2},
        {"type": "adaptive_avg_pool1d", "out": 4},
        "batch_norm",
        "instance_norm",
        {"type": "group_norm", "groups": 4},
        {"type": "upsample", "scale": 2},
    ],
)
def test_what_reads_channels_first_is_not_given_a_sequence_s_features_last(layer: Any) -> None:
    """Keras's text CNN had its 256 places for channels, and convolved over its features."""
    error = str(refusal(EMBEDDED, layer, "flatten", LINEAR, shape=[256]))
    assert "channels in the first axis" in error
    assert '{"type": "transpose"}' in error
    assert parse(EMBEDDED, TURNED, layer, "flatten", LINEAR, shape=[256])
    assert parse(layer, "flatten", LINEAR, shape=[16, 256]), "of what comes in nobody knows"
    if isinstance(layer, dict) and "conv" in layer["type"]:
        assert parse(EMBEDDED, {**layer, "in": 256}, "flatten", LINEAR, shape=[256])["layers"][1]["in"] == 256


@pytest.mark.parametrize("kind", ["mean_over_time", "max_over_time"])
def test_over_time_is_over_a_convolution_s_last_axis_and_a_sequence_s_first(kind: str) -> None:
    conv = {"type": "conv1d", "out": 100, "kernel": 3}
    content = parse(EMBEDDED, TURNED, conv, "relu", kind, LINEAR, shape=[56])
    assert (content["layers"][4]["dim"], content["layers"][5]["in"]) == (2, 100)
    assert parse(EMBEDDED, kind, LINEAR, shape=[56])["layers"][1]["dim"] == 1


def test_a_mean_over_one_axis_of_several_leaves_the_features_last() -> None:
    lines = parse(EMBEDDED, {"type": "mean", "dim": 2}, "global_avg_pool", LINEAR, shape=[10, 20])
    assert lines["layers"][3]["in"] == EMBEDDED["out"]
