"""Whoever wrote a config of which transformers makes no model is told which value it is, or what transformers says."""

from __future__ import annotations

from typing import Any

import pytest
from torch._subclasses.fake_tensor import FakeTensorMode

from probes.microtrain.building.fake_models import build_fake
from probes.workload.description import InvalidModel
from probes.workload.models import parse_model


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "bert", "hidden_size": 770, "num_attention_heads": 12},
        {"model_type": "bert", "hidden_act": "no-such-function"},
        {"model_type": "whisper", "vocab_size": 300},
        {"model_type": "swin", "depths": [2, 2], "num_heads": [3]},
        {"model_type": "resnet", "depths": [1], "hidden_sizes": []},
        {"model_type": "gpt2", "activation_function": 3, "to_dict": 4},
    ],
    ids=str,
)
def test_a_config_that_transformers_refuses_is_the_users_to_mend(config: dict[str, Any]) -> None:
    description = parse_model({"huggingface": config})
    with pytest.raises(InvalidModel) as caught:
        build_fake(description, FakeTensorMode())
    assert str(caught.value).endswith(".")
    assert "Traceback" not in str(caught.value)
    assert "/" not in str(caught.value)


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"model_type": "bert", "hidden_act": "zzz"}, "huggingface.hidden_act names no activation that transformers"),
        ({"model_type": "gpt2", "activation_function": "zzz"}, "huggingface.activation_function names no activation"),
        ({"model_type": "bert", "type_vocab_size": [2]}, "huggingface.type_vocab_size has to be a whole number."),
        (
            {"model_type": "bert", "hidden_act": "zzz", "an act that is called as nobody calls it": "zzz"},
            "huggingface.hidden_act names",
        ),
        (
            {"model_type": "bert", "an act that is called as nobody calls it": "zzz", "hidden_act": "zzz"},
            "huggingface.an act that is called as nobody calls it names no activation",
        ),
        ({"model_type": "llama", "rope_scaling": "linear"}, "huggingface.rope_scaling has to be an object."),
        ({"model_type": "llama", "rope_scaling": ["linear"]}, "huggingface.rope_scaling has to be an object."),
        ({"model_type": "swin", "depths": "2,2"}, "huggingface.depths has to be a list."),
        ({"model_type": "convnext", "hidden_sizes": [4, "8", 8, 8]}, "huggingface.hidden_sizes[1] has to be a whole"),
        ({"model_type": "gemma3", "text_config": "gemma"}, "huggingface.text_config has to be an object."),
        (
            {"model_type": "llama", "rope_scaling": {"type": "foo", "factor": 2.0}},
            'huggingface.rope_scaling.type is "foo", which transformers does not know.',
        ),
        ({"model_type": "t5", "feed_forward_proj": "swiglu"}, 'huggingface.feed_forward_proj is "swiglu", which'),
        (
            {"model_type": "llama", "num_hidden_layer": 24},
            "llama has no num_hidden_layer. Did you mean num_hidden_layers",
        ),
    ],
    ids=str,
)
def test_a_refusal_of_transformers_names_the_place_in_the_config(config: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidModel) as caught:
        build_fake(parse_model({"huggingface": config}), FakeTensorMode())
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (
            {"model_type": "bert", "problem_type": "single_label_classification", "num_labels": 1},
            'says: `problem_type="single_label_classification"` requires `num_labels > 1`. For binary',
        ),
        (
            {"model_type": "llama", "rope_scaling": {"type": "linear"}},
            "says: Missing required keys in `rope_parameters` for 'rope_type'='linear': {'factor'}. Check",
        ),
        ({"model_type": "hubert", "conv_dim": [32] * 6}, "`len(config.conv_dim) = 6`"),
        (
            {"model_type": "qwen3", "num_hidden_layers": 1, "layer_types": ["foo"]},
            "says: The `layer_types` entries must",
        ),
    ],
    ids=str,
)
def test_a_sentence_that_transformers_has_is_passed_on(config: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidModel) as caught:
        build_fake(parse_model({"huggingface": config}), FakeTensorMode())
    assert sentence in str(caught.value)
    assert str(caught.value).endswith(" Check its values against each other.")
