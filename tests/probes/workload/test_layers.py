"""Layer lists: shapes, parameters, spellings and sentences. That the counts are torch's own is checked in
tests/probes/microtrain/test_models.py."""

from typing import Any

import pytest

from probes.bounds import MAX_DIMENSION, MAX_LAYER_NESTING, MAX_LAYERS, MAX_STACKED_LAYERS
from probes.workload.description import InvalidModel
from probes.workload.layer_types import index_by_spelling
from probes.workload.layers import LAYER_TYPES, parse_layers


def parse(*layers: Any, shape: list[int] | None = None, **extra: Any) -> dict[str, Any]:
    document: dict[str, Any] = {"layers": list(layers), **extra}
    if shape is not None:
        document["input_shape"] = shape
    return parse_layers(document)[0]


def refusal(*layers: Any, shape: list[int] | None = None, **extra: Any) -> InvalidModel:
    with pytest.raises(InvalidModel) as caught:
        parse(*layers, shape=shape, **extra)
    return caught.value


def output(*layers: Any, shape: list[int]) -> list[int]:
    found: list[int] = parse(*layers, shape=shape)["output_shape"]
    return found


LINEAR = {"type": "linear", "out": 3}


def test_the_iris_network_has_83_parameters() -> None:
    layers = [{"type": "linear", "in": 4, "out": 10}, {"type": "relu"}, {"type": "linear", "in": 10, "out": 3}]
    assert parse_layers({"layers": layers, "input_shape": [4]})[1] == 83


def test_torchs_own_spelling_says_the_same_as_ours() -> None:
    theirs = parse(
        {"type": "Conv2d", "in_channels": 3, "out_channels": 8, "kernel_size": 3, "padding": "same"},
        {"type": "BatchNorm2d", "num_features": 8},
        {"type": "ReLU", "inplace": True},
        {"type": "MaxPool2d", "kernel_size": 2},
        "Flatten",
        {"type": "Linear", "in_features": 2048, "out_features": 10},
        shape=[3, 32, 32],
    )
    ours = parse(
        {"type": "conv2d", "out": 8, "kernel": [3, 3], "padding": "same"},
        "batch_norm",
        "relu",
        {"type": "max_pool2d", "kernel": 2},
        "flatten",
        {"type": "linear", "out": 10},
        shape=[3, 32, 32],
    )
    assert theirs == ours


@pytest.mark.parametrize(
    ("first", "message"),
    [
        (
            {"type": "liner", "in": 4, "out": 10},
            r"^layers\[0\]: the layer type \"liner\" .*mean linear",
        ),
        (
            {"type": "sequential", "layers": ["rellu"]},
            r"^layers\[0\]\.layers\[0\]: the layer type",
        ),
        ({"in": 4}, r"^layers\[0\] is an object without a \"type\""),
    ],
)
def test_a_first_layer_that_is_none_is_named_before_its_input_is_asked_for(first: object, message: str) -> None:
    with pytest.raises(InvalidModel, match=message):
        parse_layers({"layers": [first]})


def test_a_first_linear_layer_within_others_is_named_by_its_place() -> None:
    layers = [{"type": "sequential", "layers": [{"type": "linear", "in": 4, "outs": 3}]}]
    for shape in ({}, {"input_shape": [4]}):
        with pytest.raises(InvalidModel, match=r"^layers\[0\]\.layers\[0\] \(linear\) has no option"):
            parse_layers({"layers": layers, **shape})


def test_a_first_linear_layer_says_the_input_shape() -> None:
    assert parse({"type": "linear", "in": 7, "out": 3})["input_shape"] == [7]


def test_an_embedding_first_means_that_whole_numbers_go_in() -> None:
    layers = ({"type": "embedding", "in": 100, "out": 8}, "mean", LINEAR)
    within = {"type": "sequential", "layers": [{"type": "sequential", "layers": [*layers[:2]]}]}
    for each in (layers, (within, LINEAR)):
        assert parse(*each, shape=[16])["tokens"] == 100
    content = parse(*layers, shape=[16])
    assert content["tokens"] == 100
    assert parse(LINEAR, shape=[4])["tokens"] is None


@pytest.mark.parametrize(
    ("layer", "shape", "expected"),
    [
        ({"type": "conv1d", "out": 4, "kernel": 80, "stride": 16}, [1, 8000], [4, 496]),
        ({"type": "conv2d", "out": 4, "kernel": 3, "stride": 2, "padding": 1, "dilation": 2}, [3, 9, 8], [4, 4, 3]),
        ({"type": "conv_transpose2d", "out": 4, "kernel": 2, "stride": 2}, [8, 5, 5], [4, 10, 10]),
        ({"type": "max_pool2d", "kernel": 3, "stride": 2, "ceil_mode": True}, [4, 6, 6], [4, 3, 3]),
        ({"type": "adaptive_avg_pool2d", "out": 7}, [4, 9, 3], [4, 7, 7]),
        ("global_avg_pool", [4, 9, 3], [4]),
        ({"type": "upsample", "scale": 2}, [4, 9, 3], [4, 18, 6]),
        ({"type": "lstm", "hidden": 5, "bidirectional": True}, [7, 3], [7, 10]),
        ({"type": "gru", "hidden": 5, "output": "last"}, [7, 3], [5]),
        ({"type": "attention", "heads": 2}, [7, 4], [7, 4]),
        ({"type": "flatten", "start_dim": 2}, [4, 9, 3], [4, 27]),
        ({"type": "reshape", "shape": [-1, 6]}, [4, 3], [2, 6]),
        ({"type": "permute", "dims": [2, 1]}, [4, 3], [3, 4]),
        ({"type": "transpose", "dim0": 1, "dim1": -1}, [4, 3, 2], [2, 3, 4]),
        ("unsqueeze", [4], [1, 4]),
        ({"type": "squeeze", "dim": 1}, [1, 4], [4]),
        ({"type": "residual", "layers": [{"type": "linear", "out": 4}, "relu"]}, [4], [4]),
    ],
)
def test_the_shape_behind_a_layer_is_torchs(layer: Any, shape: list[int], expected: list[int]) -> None:
    assert output({"type": "sequential", "layers": ["identity", layer]}, "prelu", shape=shape) == expected


EMBEDDED = {"type": "embedding", "in": 100, "out": 16}
TURNED = {"type": "transpose", "dim0": 1, "dim1": 2}


@pytest.mark.parametrize(
    ("layers", "shape", "pooled"),
    [
        ([EMBEDDED], [256], 16),
        ([EMBEDDED, "dropout", "relu"], [256], 16),
        ([EMBEDDED, {"type": "linear", "out": 8}], [256], 8),
        ([{"type": "lstm", "hidden": 5, "bidirectional": True}], [7, 3], 10),
        ([{"type": "transformer_encoder_layer", "heads": 2}], [7, 4], 4),
        (["position_embedding"], [7, 4], 4),
        (
            [{"type": "conv2d", "out": 12, "kernel": 2, "stride": 2}, {"type": "flatten", "start_dim": 2}, TURNED],
            [3, 8, 8],
            12,
        ),
        ([EMBEDDED, TURNED], [256], 16),
        ([EMBEDDED, TURNED, {"type": "conv1d", "out": 9, "kernel": 3}], [256], 9),
        ([{"type": "conv1d", "out": 9, "kernel": 3}], [2, 30], 9),
        (["identity"], [4, 3], 4),
    ],
)
@pytest.mark.parametrize("kind", ["global_avg_pool", "GlobalMaxPooling1D"])
def test_a_global_pool_keeps_a_sequence_s_features_and_an_image_s_channels(
    layers: list[Any], shape: list[int], pooled: int, kind: str
) -> None:
    content = parse(*layers, kind, {"type": "linear", "out": 2}, shape=shape)
    assert content["layers"][-1]["in"] == pooled


def test_a_convolution_over_a_sequence_s_steps_is_told_to_turn_it() -> None:
    with pytest.raises(InvalidModel, match=r'Its features lie in the last axis: put {"type": "transpose"} before it'):
        parse(EMBEDDED, {"type": "conv1d", "in": 16, "out": 8, "kernel": 3}, shape=[256])


def test_classes_lie_where_the_last_layer_puts_them() -> None:
    assert parse({"type": "conv2d", "out": 5, "kernel": 1}, shape=[3, 8, 8])["class_axis"] == 1
    assert parse({"type": "lstm", "hidden": 8}, LINEAR, shape=[6, 4])["class_axis"] == 2


def test_an_axis_that_comes_or_goes_before_the_channels_leaves_them_first_no_more() -> None:
    def axis(*changes: Any) -> int:
        found: int = parse({"type": "conv2d", "out": 1, "kernel": 1}, *changes, shape=[3, 8, 1])["class_axis"]
        return found

    first, last = {"type": "squeeze", "dim": 1}, {"type": "squeeze", "dim": 3}
    assert (axis(first), axis(last)) == (2, 1)
    assert (axis({"type": "unsqueeze", "dim": 1}), axis({"type": "unsqueeze", "dim": 4})) == (4, 1)
    softmax = parse({"type": "conv2d", "out": 1, "kernel": 1}, first, "softmax", shape=[3, 8, 1])["layers"][-1]
    assert softmax["dim"] == 2
    told = {"type": "reshape", "shape": [1, 8]}
    assert (axis(told), axis({**told, "channels_first": True})) == (2, 1)


def test_one_output_is_a_regression_unless_told_otherwise() -> None:
    assert parse({"type": "linear", "out": 1}, shape=[4])["loss"] == "mse"
    assert parse(LINEAR, shape=[4])["loss"] == "cross-entropy"
    assert parse(LINEAR, shape=[4], loss="MSE")["loss"] == "mse"


def test_shapes_that_do_not_fit_name_the_layer_both_sizes_and_the_way_out() -> None:
    error = str(refusal({"type": "linear", "out": 10}, "relu", {"type": "linear", "in": 5, "out": 3}, shape=[4]))
    assert "layers[2] (linear)" in error
    assert '"in": 5' in error
    assert "10 arrive" in error
    assert 'Write "in": 10' in error


def test_a_forgotten_flatten_is_named() -> None:
    conv = {"type": "conv2d", "out": 4, "kernel": 3}
    assert "flatten" in str(refusal(conv, {"type": "linear", "in": 4 * 36, "out": 3}, shape=[3, 8, 8]))


def test_an_image_without_channels_says_how_the_shape_is_written() -> None:
    assert "[channels, height, width]" in str(refusal({"type": "conv2d", "out": 4, "kernel": 3}, shape=[28, 28]))


def test_a_kernel_larger_than_what_is_left_is_refused() -> None:
    assert "does not fit" in str(refusal({"type": "conv2d", "out": 4, "kernel": 9}, LINEAR, shape=[3, 4, 4]))


def test_a_transposed_convolution_that_leaves_nothing_is_told_what_would_leave_more() -> None:
    layer = {"type": "conv_transpose2d", "out": 4, "kernel": 2, "padding": 2}
    error = str(refusal(layer, shape=[8, 1, 1]))
    assert "padding cuts off all" in error
    assert "Take less padding or a larger kernel" in error
    for better in ({"padding": 0}, {"kernel": 6}):
        assert output({**layer, **better}, shape=[8, 1, 1]) == [4, 2, 2]


def test_prelu_has_one_weight_or_one_a_channel() -> None:
    conv, prelu = {"type": "conv2d", "out": 6, "kernel": 3}, {"type": "PReLU", "num_parameters": 6}
    each = {"type": "prelu", "count": "channels"}
    kinds = ("identity", "prelu", prelu, each)
    counts = [parse_layers({"layers": [conv, kind], "input_shape": [3, 9, 9]})[1] for kind in kinds]
    assert [count - counts[0] for count in counts] == [0, 1, 6, 6]
    assert parse(conv, each, shape=[3, 9, 9]) == parse(conv, prelu, shape=[3, 9, 9])
    assert "a whole number is expected" in str(refusal(conv, {"type": "prelu", "count": "each"}, shape=[3, 9, 9]))
    error = str(refusal(conv, {"type": "prelu", "count": 5}, shape=[3, 9, 9]))
    assert "layers[1] (prelu)" in error
    assert "6 channels arrive" in error
    assert 'Write "count": "channels"' in error


@pytest.mark.parametrize(
    ("written", "near"), [("linaer", "linear"), ("Conv2", "conv2d"), ("batchnorm4d", "batch_norm"), ("soft_max", None)]
)
def test_an_unknown_layer_type_brings_near_names(written: str, near: str | None) -> None:
    if near is None:
        parse(LINEAR, written, shape=[4])  # a spelling that is known
        return
    error = refusal({"type": written, "out": 3}, shape=[4])
    assert any(near in suggestion for suggestion in error.suggestions)
    assert error.suggestions[0] in str(error)


def test_an_unknown_option_brings_near_names() -> None:
    error = refusal({"type": "linear", "out_feature": 3}, shape=[4])
    assert "out_features" in error.suggestions
    assert "layers[0] (linear)" in str(error)


def test_one_option_in_two_spellings_is_refused() -> None:
    assert "twice" in str(refusal({"type": "linear", "out": 3, "out_features": 3}, shape=[4]))


@pytest.mark.parametrize(
    "size", [0, -1, 10**18, 10**400, True, 1.5, float("nan"), float("inf"), 1e18, "3", None, [], {}]
)
def test_no_size_but_a_sensible_whole_number_is_taken(size: Any) -> None:
    refusal({"type": "linear", "out": size}, shape=[4])
    refusal(LINEAR, shape=[4, size])
    refusal({"type": "conv2d", "out": 4, "kernel": size}, shape=[3, 8, 8])
    refusal({"type": "lstm", "hidden": 4, "num_layers": size if size is not None else 0}, shape=[3, 8])


def test_a_whole_number_written_as_3_0_is_taken() -> None:
    assert parse({"type": "linear", "out": 3.0}, shape=[4]) == parse(LINEAR, shape=[4])


def test_a_tensor_that_no_machine_holds_is_refused() -> None:
    big = 2**24
    assert "beyond" in str(refusal({"type": "linear", "out": big}, shape=[big, 4]))
    wide = [{"type": "linear", "out": 2**24}] * 2
    assert "parameters" in str(refusal(*wide, shape=[4]))


def test_layers_are_counted_inside_each_other_too() -> None:
    refusal(*["relu"] * (MAX_LAYERS + 1), shape=[4])
    block = {"type": "sequential", "layers": ["relu"] * (MAX_LAYERS // 2)}
    refusal(LINEAR, block, block, shape=[4])
    refusal({"type": "lstm", "hidden": 4, "num_layers": MAX_STACKED_LAYERS + 1}, shape=[3, 8])


def test_nesting_has_an_end() -> None:
    layer: Any = LINEAR
    for _ in range(MAX_LAYER_NESTING + 1):
        layer = {"type": "residual", "layers": [layer]}
    assert "levels deep" in str(refusal(layer, shape=[3]))


def test_a_residual_whose_shapes_differ_is_refused() -> None:
    assert "must be equal" in str(refusal({"type": "residual", "layers": [LINEAR]}, shape=[4]))


def test_a_model_without_weights_is_refused() -> None:
    assert 'Put in at least one with weights, such as "linear".' in str(refusal("relu", shape=[4]))


def test_layers_with_too_much_to_train_are_told_to_be_made_smaller() -> None:
    wide = {"type": "linear", "in": MAX_DIMENSION, "out": MAX_DIMENSION}
    said = str(refusal(*[wide] * 3, shape=[MAX_DIMENSION]))
    assert "more than 1e+13 parameters. Make them smaller." in said
    assert "at least one" not in said


def test_no_two_types_share_a_spelling() -> None:
    index_by_spelling(LAYER_TYPES)
    with pytest.raises(ValueError, match="spelled"):
        index_by_spelling((*LAYER_TYPES, LAYER_TYPES[0].__class__("Linear", (), LAYER_TYPES[0].infer)))


def test_short_spellings_of_sizes_are_understood() -> None:
    ours = parse({"type": "embedding", "in": 50, "out": 8}, {"type": "attention", "heads": 2}, shape=[6])
    theirs = parse({"type": "Embedding", "vocab": 50, "dim": 8}, {"type": "attention", "dim": 8, "heads": 2}, shape=[6])
    assert theirs == ours


def test_further_norms_and_unflatten_are_taken_in_torchs_spelling() -> None:
    content = parse(
        {"type": "Unflatten", "dim": 1, "unflattened_size": [3, 4, -1]},
        {"type": "Conv2d", "out_channels": 6, "kernel_size": 3},
        {"type": "InstanceNorm2d", "num_features": 6, "affine": True},
        {"type": "RMSNorm", "normalized_shape": 2},
        shape=[48],
    )
    assert content["output_shape"] == [6, 2, 2]
    assert [layer["type"] for layer in content["layers"]] == ["reshape", "conv2d", "instance_norm2d", "rms_norm"]


def test_a_norm_that_writes_torchs_own_numbers_is_the_one_that_writes_none() -> None:
    numbers = {"eps": 1e-5, "momentum": 0.1}
    written = [{"type": name, **numbers} for name in ("batch_norm", "instance_norm")]
    layer, rms = ({"type": name, "shape": 3} for name in ("layer_norm", "rms_norm"))
    written.append({**layer, "eps": 1e-5})
    grouped = {"type": "group_norm", "groups": 2}
    plain = parse("batch_norm", "instance_norm", layer, grouped, rms, shape=[4, 3, 3])
    assert parse(*written, {**grouped, "eps": 1e-5}, rms, shape=[4, 3, 3]) == plain
    assert all("eps" not in layer for layer in plain["layers"])
    own = parse({"type": "rms_norm", "eps": 1e-5}, {"type": "batch_norm", "momentum": 0.5}, shape=[4, 3, 3])
    assert own["layers"][0]["eps"] == 1e-5  # of an rms_norm torch takes that of the numbers' type
    assert own["layers"][1]["momentum"] == 0.5
    assert "eps" not in own["layers"][1]


def test_sizes_that_an_axis_cannot_have_are_refused() -> None:
    assert "48 long" in str(refusal({"type": "unflatten", "sizes": [5, -1]}, LINEAR, shape=[48]))
    assert "more than one number" in str(refusal("instance_norm", LINEAR, shape=[4]))
    assert "more than one number" in str(refusal("instance_norm", LINEAR, shape=[4, 1, 1]))
    groups = {"type": "group_norm", "groups": 4}  # of which torch refuses a batch of one
    assert "a group for each number" in str(refusal(groups, LINEAR, shape=[4]))
    assert "a group for each number" in str(refusal(groups, LINEAR, shape=[4, 1, 1]))
    assert parse(groups, "flatten", LINEAR, shape=[4, 2])["output_shape"] == [3]


def test_an_empty_list_is_called_empty() -> None:
    assert '"layers" has no layer in it' in str(refusal(shape=[4]))
    assert "has no layer in it" in str(refusal({"type": "residual", "layers": []}, shape=[4]))
