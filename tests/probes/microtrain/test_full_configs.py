"""A config.json as transformers writes it is taken, of every model type that is trained here."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

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


def test_no_whole_config_is_refused() -> None:
    refused, taken = {}, 0
    for model_type in read_architectures().trainable_types():
        try:
            config = whole_config(model_type)
        except Exception:  # noqa: BLE001 - some have no defaults
            continue
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


@pytest.mark.parametrize("model_type", ["resnet", "wav2vec2", "mamba2", "segformer", "deberta-v2"])
def test_a_whole_config_is_built_as_the_few_keys_that_differ_are(model_type: str) -> None:
    whole, bare = ({"huggingface": config} for config in (whole_config(model_type), {"model_type": model_type}))
    with torch.device("meta"):
        told = [build_model(parse_model(document)).module for document in (whole, bare)]
    assert [p.shape for p in told[0].parameters()] == [p.shape for p in told[1].parameters()]
