"""parse_model: whatever JSON can hold is a model or a sentence, soon, and with nothing built."""

import subprocess
import sys
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.workload.description import InvalidModel, ModelDescription
from probes.workload.models import parse_model, python_model

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=12), children, max_size=4),
    max_leaves=12,
)
KEYS = ["type", "layers", "input_shape", "out", "in", "kernel", "huggingface", "model_type", "task", "summary", "loss"]
TYPES = ["linear", "conv2d", "lstm", "bert", "relu", "residual", "embedding", "flatten", "attention", "mean", "permute"]
WORDS = st.sampled_from([*KEYS, *TYPES, "parameters", "num_hidden_layers", "id2label", "dims", "shape", "heads", "dim"])
NEARLY = st.recursive(
    WORDS | st.integers(-3, 9) | st.just(10**18) | st.none() | st.booleans() | st.floats(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(WORDS, children, max_size=5),
    max_leaves=20,
)


def deep(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


LINEAR = {"type": "linear", "out": 3}
SUMMARY = {"parameters": 10**30, "flops_per_sample": 0, "activation_bytes_per_sample": 0, "operations": 1}
NO_LAYERS: list[Any] = [3, [], [None], [[]], [{"type": None}], [{"type": []}], ["linear"], ["\ud800"], deep(1000)]
NO_SHAPES: list[Any] = [{}, "4", [], [[]], deep(1000)]
NO_LOSSES: list[Any] = [{}, 3, "l1", "\ud800"]
NO_SUMMARIES: list[Any] = [None, [], SUMMARY, {"parameters": "1"}, {"x" * 99_999: 1}]
NO_CONFIGS: list[Any] = ["bert", {}, {"model_type": ["bert"]}, {"model_type": "\ud800"}]
NO_VALUES: list[Any] = [deep(1000), [0] * 1_000_000, 10**5000, "\ud800"]
SCALARS: list[Any] = [None, True, 0, 1e999, float("nan"), "", " ", "\ud800", "\x00\x1b[31m", "x" * 1_000_000]
RUBBISH: list[Any] = [
    *SCALARS,
    [],
    {},
    {"": 1},
    *({"layers": layers} for layers in NO_LAYERS),
    {"layers": [{"type": "x" * 100_000}]},
    {"layers": {}, "summary": {}},
    *({"layers": ["relu"], "input_shape": shape} for shape in NO_SHAPES),
    *({"layers": [LINEAR], "input_shape": [4], "loss": loss} for loss in NO_LOSSES),
    {"layers": deep(1000), "input_shape": [4]},
    {"layers": [{"type": "residual", "layers": deep(1000)}]},
    *({"summary": summary} for summary in NO_SUMMARIES),
    *({"huggingface": config} for config in NO_CONFIGS),
    *({"huggingface": {"model_type": "bert", "x": x}} for x in NO_VALUES),
    *({"huggingface": {"model_type": "bert", key: 4}} for key in ("id2label", "\ud800", "__class__", "")),
    {"huggingface": {"model_type": "bert"}, "task": []},
    {"huggingface": {"model_type": "bert"}, "sequence_length": 1e30},
]


def refuse(value: Any) -> str:
    with pytest.raises(InvalidModel) as caught:
        parse_model(value)
    return str(caught.value)


@pytest.mark.parametrize("value", RUBBISH, ids=range(len(RUBBISH)))
def test_rubbish_gets_a_short_clean_sentence(value: Any) -> None:
    message = refuse(value)
    message.encode()  # no lone surrogates
    assert message.replace("\n", "").isprintable()
    assert len(message) < 1500


@given(JSON | NEARLY | NEARLY.map(lambda value: {"layers": value, "input_shape": [4]}))
@settings(max_examples=300, deadline=None)
def test_any_json_is_a_model_or_a_sentence(value: Any) -> None:
    try:
        assert isinstance(parse_model(value), ModelDescription)
    except InvalidModel as error:
        str(error).encode()


@given(st.dictionaries(WORDS, NEARLY, max_size=4))
@settings(max_examples=100, deadline=None)
def test_any_config_is_a_model_or_a_sentence(extra: Any) -> None:
    try:
        description = parse_model({"huggingface": {**extra, "model_type": "bert"}})
        assert ModelDescription.from_json(description.to_json()).key == description.key
    except InvalidModel as error:
        str(error).encode()


def test_refusing_a_long_list_takes_no_memory_of_its_own() -> None:
    long = {"huggingface": {"model_type": "bert", "x": [0] * 2_000_000}}
    layers = {"layers": ["relu"] * 2_000_000, "input_shape": [4]}
    refuse(long)  # reads what is cached for good
    tracemalloc.start()
    refuse(long)
    refuse(layers)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5_000_000


def test_no_message_repeats_long_input() -> None:
    long = "q" * 5000
    for value in (
        long,
        {long: 1},
        {"layers": [long], "input_shape": [4]},
        {"layers": [{"type": "relu", long: 1}], "input_shape": [4]},
        {"huggingface": {"model_type": long}},
        {"huggingface": {"model_type": "bert", long: 1}},
        {"huggingface": {"model_type": "bert"}, "task": long},
    ):
        assert "q" * 41 not in refuse(value)


def test_parsing_imports_neither_torch_nor_transformers() -> None:
    program = (
        "import sys; from probes.workload.models import parse_model; from probes.workload.catalogue import list_models;"
        "list_models(); parse_model({'huggingface': {'model_type': 'bert'}});"
        "print([name for name in ('torch', 'transformers', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_equal_models_have_one_key_whatever_they_are_called() -> None:
    layers = [{"type": "Linear", "in_features": 4, "out_features": 10}, "ReLU", {"type": "linear", "out": 3}]
    assert parse_model("iris-mlp").key == parse_model({"layers": layers, "input_shape": [4]}).key


def test_a_config_that_lost_its_points_is_the_same_model() -> None:
    keys = [parse_model({"huggingface": {"model_type": "bert", "hidden_dropout_prob": p}}).key for p in (0, 0.0, 0.1)]
    assert keys[0] == keys[1] != keys[2]


def test_a_summary_keeps_its_four_figures() -> None:
    figures = {"parameters": 25, "flops_per_sample": 4.0, "activation_bytes_per_sample": 9, "operations": 160}
    assert parse_model({"summary": figures}).content == {**figures, "flops_per_sample": 4}


def test_a_summary_says_what_it_lacks() -> None:
    assert "flops_per_sample" in refuse({"summary": {"parameters": 25}})


def test_python_code_is_named_as_module_and_function() -> None:
    assert python_model("train.models:make").content == {"target": "train.models:make"}
    for target in ("train", "train:", ":make", "a b:c", "../x:make", "x:make()", "x" * 500 + ":y", "1:2"):
        with pytest.raises(InvalidModel, match="module:function"):
            python_model(target)


def test_python_code_is_never_reached_through_parse_model() -> None:
    refuse("train:make")
    refuse({"python": "train:make"})
    refuse({"kind": "python", "name": "train:make", "content": {"target": "train:make"}})


def test_a_description_stored_before_versions_reads_and_is_found_by_its_key() -> None:
    """What was traced and measured of networks written as layers lies in stores under such keys."""
    content = {"layers": [], "input_shape": [4]}
    found = ModelDescription.from_json({"kind": "layers", "name": "tiny", "content": content})
    assert found == ModelDescription("layers", "tiny", content)
    assert found.key == "3e1193d3d5e6008f4e999512c915da8a"
