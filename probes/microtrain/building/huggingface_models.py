"""A checked Hugging Face config -> the model that transformers makes of it, with random weights. No network."""

from __future__ import annotations

import os
from functools import partial
from math import prod
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from probes.microtrain.building.built import BuiltModel
from probes.microtrain.building.config_floats import with_floats
from probes.microtrain.building.misspelt_keys import check_keys
from probes.microtrain.building.random_samples import LABELS, make_sampler, takes_colours
from probes.microtrain.building.refused_configs import explained
from probes.microtrain.building.sample_sizes import config_parts, table_limit
from probes.workload.architectures import read_architectures
from probes.workload.config import SPECIAL_FLOAT
from probes.workload.description import InvalidModel
from probes.workload.huggingface import left_out

# Table of transformers' source (probes.workload.architectures) -> the class that reads it.
AUTO_CLASSES = {
    "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES": "AutoModelForImageClassification",
    "MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING_NAMES": "AutoModelForSemanticSegmentation",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES": "AutoModelForSpeechSeq2Seq",
    "MODEL_FOR_CTC_MAPPING_NAMES": "AutoModelForCTC",
    "MODEL_FOR_AUDIO_CLASSIFICATION_MAPPING_NAMES": "AutoModelForAudioClassification",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES": "AutoModelForSeq2SeqLM",
    "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES": "AutoModelForSequenceClassification",
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES": "AutoModelForCausalLM",
    "MODEL_FOR_MASKED_LM_MAPPING_NAMES": "AutoModelForMaskedLM",
    "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES": "AutoModelForTokenClassification",
    "MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES": "AutoModelForQuestionAnswering",
}


def import_transformers() -> Any:
    """transformers, with what all of its models are made of; nothing of it asks a network."""
    os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported, which reads it once
    import transformers
    from transformers import modeling_utils  # noqa: F401 - most of the time that a first model takes

    transformers.logging.set_verbosity_error()
    return transformers


def build_huggingface(content: dict[str, Any]) -> BuiltModel:
    """content: as probes.workload.huggingface makes it. Raises InvalidModel when transformers refuses the config."""
    module, config = _build(content)
    _check_positions(content, module, config)
    return BuiltModel(module, make_sampler(content, module, config), forward, loss, partial(inputs_of, module))


def forward(module: nn.Module, batch: dict[str, torch.Tensor]) -> Any:
    """With labels while training, so that the model computes its own loss; without them in inference, where a
    decoder is fed them as what was said so far."""
    if module.training:
        return module(**batch)
    inputs = inputs_of(module, batch)
    said = inputs.pop("labels", None)
    return module(**inputs) if said is None else module(**inputs, decoder_input_ids=said)


def inputs_of(module: nn.Module, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Without labels, but for those that a decoder is fed."""
    return {name: tensor for name, tensor in batch.items() if name not in LABELS or _is_said(module, name, tensor)}


def _is_said(module: nn.Module, name: str, labels: torch.Tensor) -> bool:
    """Several labels of one sample, or several numbers, are no words."""
    decodes = getattr(module.config, "is_encoder_decoder", False)
    return bool(decodes) and name == "labels" and labels.dim() == 2 and not labels.is_floating_point()


def loss(output: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """The model's own; cross-entropy where a classifier leaves it to its user."""
    value = getattr(output, "loss", None)
    if isinstance(value, torch.Tensor):
        return value
    logits, labels = getattr(output, "logits", None), batch.get("labels")
    if logits is None:  # some classifiers hand their scores out under another name (PP-LCNet)
        logits = getattr(output, "last_hidden_state", None)
    if isinstance(logits, torch.Tensor) and labels is not None and logits.shape[:-1] == labels.shape:
        return functional.cross_entropy(logits.flatten(0, -2), labels.flatten())
    raise InvalidModel("This model computes no loss from labels, so it cannot be trained here. Take another task.")


def _build(content: dict[str, Any]) -> tuple[Any, Any]:
    """Module and config object."""
    config, automatic = make_config(content)
    with explained(content["config"]):
        return automatic.from_config(config), config


def make_config(content: dict[str, Any]) -> tuple[Any, Any]:
    """transformers' config object, and the class that builds its model. Raises InvalidModel."""
    transformers = import_transformers()
    options = _with_special_floats(content["config"])
    model_type, named = options.pop("model_type"), options.pop("architectures", None)
    known = read_architectures()
    table = known.table(model_type, content["task"]) or ""
    with explained(content["config"]):
        kind = transformers.CONFIG_MAPPING[model_type]
        check_keys(model_type, kind, options)
        options = with_floats(kind, options)
        config = transformers.AutoConfig.for_model(model_type, **options)
        config.dtype = torch.float32  # the weights'; a plan's precision is autocast
        config.architectures = named or [known.classes[table][model_type][0]]  # asked for where a type has several
        prepare(config, content["task"])
        return config, getattr(transformers, AUTO_CLASSES[table])


def _with_special_floats(value: Any) -> Any:
    """A copy with the numbers that JSON has none for (probes.workload.config)."""
    if isinstance(value, dict):
        if list(value) == [SPECIAL_FLOAT]:
            return float(value[SPECIAL_FLOAT])
        return {key: _with_special_floats(item) for key, item in value.items()}
    return [_with_special_floats(item) for item in value] if isinstance(value, list) else value


def prepare(config: Any, task: str) -> None:
    """What a training script sets beside the config: dictionary outputs, a padding token for classifying text, and
    the token that a decoder starts with (in a config.json; not in every config class)."""
    config.return_dict = True
    decodes = getattr(config, "is_encoder_decoder", False)
    for part in config_parts(config):
        if (decodes or task == "text-classification") and getattr(part, "pad_token_id", None) is None:
            part.pad_token_id = 0
    if decodes and getattr(config, "decoder_start_token_id", None) is None:
        config.decoder_start_token_id = config.pad_token_id


def _check_positions(content: dict[str, Any], module: nn.Module, config: Any) -> None:
    """Raises InvalidModel when more tokens are asked for than the model has positions for."""
    limit = table_limit(module, config, left_out(content["task"]))
    if limit is None:
        return
    length, size = content.get("sequence_length"), content.get("image_size")
    if length is not None and length > limit:
        raise InvalidModel(
            f'"sequence_length" is {length}, but this model has {limit} positions. Take at most {limit}.'
        )
    if size and takes_colours(module) and prod(size) > limit:
        raise InvalidModel(
            f'"image_size" makes {size[0]} x {size[1]} tokens, one a pixel, but this model has {limit} positions. '
            "Take a smaller image."
        )
