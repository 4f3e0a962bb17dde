"""A config.json as transformers writes it is taken, of every model type that is trained here."""

from __future__ import annotations

import json
from contextlib import suppress
from functools import cache
from typing import Any

import pytest
import torch

from probes.microtrain.building.huggingface_models import make_config
from probes.microtrain.building.misspelt_keys import misspelt_keys
from probes.microtrain.models import build_model
from probes.workload.architectures import read_architectures
from probes.workload.description import InvalidModel
from probes.workload.huggingface import parse_huggingface
from probes.workload.models import parse_model

transformers = pytest.importorskip("transformers")


def whole_config(model_type: str) -> dict[str, Any]:
    """Every key of it, whatever its value; None: not even transformers makes one of defaults."""
    written: dict[str, Any] = json.loads(transformers.AutoConfig.for_model(model_type).to_json_string(use_diff=False))
    return written


@cache
def whole_configs() -> tuple[tuple[str, dict[str, Any]], ...]:
    """Of every trainable model type that has defaults."""
    configs = []
    for model_type in read_architectures().trainable_types():
        with suppress(Exception):  # some have no defaults
            configs.append((model_type, whole_config(model_type)))
    return tuple(configs)


def test_no_whole_config_is_refused() -> None:
    refused, taken = {}, 0
    for model_type, config in whole_configs():
        try:
            parse_huggingface({"huggingface": config})
            taken += 1
        except InvalidModel as error:
            refused[model_type] = str(error)
    by_name = {
        name: said for name, said in refused.items() if "is loaded by name" in said
    }  # a backbone of another package
    assert refused == by_name
    assert taken > 200
    assert len(by_name) < 20


def test_no_key_that_a_class_writes_counts_as_misspelt() -> None:
    """Not even where nothing but those is written that are none of its fields."""
    found = []
    for model_type, config in whole_configs():
        kind = transformers.CONFIG_MAPPING[model_type]
        beside = config.keys() - getattr(kind, "__dataclass_fields__", {}).keys()
        found += [(model_type, *pair) for pair in misspelt_keys(kind, beside)]
    assert found == []
    assert len(whole_configs()) > 200


@pytest.mark.parametrize("model_type", ["resnet", "wav2vec2", "mamba2", "segformer", "deberta-v2"])
def test_a_whole_config_is_built_as_the_few_keys_that_differ_are(model_type: str) -> None:
    whole, bare = ({"huggingface": config} for config in (whole_config(model_type), {"model_type": model_type}))
    with torch.device("meta"):
        told = [build_model(parse_model(document)).module for document in (whole, bare)]
    assert [p.shape for p in told[0].parameters()] == [p.shape for p in told[1].parameters()]


def without_points(value: Any) -> Any:
    """As JavaScript writes what it has read: 0.0 is 0."""
    if isinstance(value, dict):
        return {key: without_points(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_points(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def made(document: dict[str, Any]) -> str | None:
    """What is said against it; None: transformers takes it."""
    try:
        make_config(parse_model(document).content)
    except InvalidModel as error:
        return str(error)
    return None


def test_a_config_that_lost_its_points_on_a_page_is_taken_as_well() -> None:
    refused, taken = {}, 0
    for model_type, config in whole_configs():
        if made({"huggingface": config}) is not None:
            continue
        said = made({"huggingface": without_points(config)})
        if said is None:
            taken += 1
        else:
            refused[model_type] = said
    assert refused == {}
    assert taken > 200


def test_whole_numbers_become_floats_only_where_a_class_takes_no_others() -> None:
    written = {"model_type": "bart", "encoder_layerdrop": 0, "d_model": 64, "init_std": 1, "scale_embedding": False}
    config, _ = make_config(parse_model({"huggingface": written}).content)
    assert repr((config.encoder_layerdrop, config.init_std)) == "(0.0, 1.0)"
    assert repr((config.d_model, config.scale_embedding)) == "(64, False)"
    inside = {"model_type": "voxtral", "text_config": {"model_type": "llama", "rms_norm_eps": 1, "hidden_size": 64}}
    config, _ = make_config(parse_model({"huggingface": inside}).content)
    assert repr((config.text_config.rms_norm_eps, config.text_config.hidden_size)) == "(1.0, 64)"
