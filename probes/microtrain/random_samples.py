"""Random batches that a Hugging Face model takes: inputs of the right kind, and labels for its own loss."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from probes.microtrain.built import MakeBatch
from probes.microtrain.known_numbers import COUNTS
from probes.microtrain.sample_sizes import audio_shapes, config_parts, first_of, image_shape, tokens_of, vocabulary_of
from probes.workload.description import InvalidModel
from probes.workload.huggingface import AUDIO_TASKS, IMAGE_TASKS

LABELS = ("labels", "start_positions", "end_positions")
LM_TASKS = ("causal-lm", "masked-lm")
LONGEST_TRANSCRIPT = 32  # characters in a second of speech, roughly; CTC needs fewer than output frames

Make = Callable[[int, torch.Generator | None], torch.Tensor]


def make_sampler(content: dict[str, Any], module: nn.Module, config: Any) -> MakeBatch:
    """The first call decides what the model is fed; it raises InvalidModel when nothing known here fits."""
    task = content["task"]
    kinds = _image_makers if task in IMAGE_TASKS else _audio_makers if task in AUDIO_TASKS else _text_makers
    makers: dict[str, Make] = {}

    def make_batch(batch_size: int, generator: torch.Generator | None = None) -> dict[str, torch.Tensor]:
        if not makers:
            makers.update(kinds(content, module, config))
        batch = {name: make(batch_size, generator) for name, make in makers.items()}
        if task in LM_TASKS:
            batch["labels"] = batch[input_name(module, "input_ids")]
        return batch

    return make_batch


def input_name(module: nn.Module, usual: str) -> str:
    """What a model calls its main input."""
    name = getattr(module, "main_input_name", usual)
    return name if isinstance(name, str) else usual


def _noise(*shape: int) -> Make:
    return lambda batch_size, generator: torch.randn(batch_size, *shape, generator=generator)


def _integers(low: int, high: int, *shape: int) -> Make:
    return lambda batch_size, generator: torch.randint(
        low, max(high, low + 1), (batch_size, *shape), generator=generator
    )


def _image_makers(content: dict[str, Any], module: nn.Module, config: Any) -> dict[str, Make]:
    shape = image_shape(content, config)
    if input_name(module, "pixel_values") == "input_ids":  # its images are rows of colours (ImageGPT)
        return {
            "input_ids": _tokens(module, config, tokens_of(content, module, config)),
            "labels": _class_labels(config),
        }
    labels = (
        _integers(0, config.num_labels, *shape[1:])
        if content["task"] == "semantic-segmentation"
        else _class_labels(config)
    )
    return {input_name(module, "pixel_values"): _noise(*shape), "labels": labels}


def _class_labels(config: Any) -> Make:
    """One class a sample; numbers where the config says regression or several labels at once (transformers' own
    rule, loss_utils.ForSequenceClassificationLoss)."""
    if config.problem_type == "multi_label_classification":
        return lambda batch_size, generator: torch.rand(batch_size, config.num_labels, generator=generator)
    if config.problem_type == "regression" or config.num_labels == 1:
        return _noise() if config.num_labels == 1 else _noise(config.num_labels)
    return _integers(0, config.num_labels)


def _text_makers(content: dict[str, Any], module: nn.Module, config: Any) -> dict[str, Make]:
    length, task = tokens_of(content, module, config), content["task"]
    tokens = _tokens(module, config, length)
    makers = {input_name(module, "input_ids"): tokens}
    if task == "text-classification":
        makers[next(iter(makers))] = _ended(tokens, config)
        return makers | {"labels": _class_labels(config)}
    if task == "token-classification":
        return makers | {"labels": _integers(0, config.num_labels, length)}
    if task == "question-answering":
        return makers | {"start_positions": _integers(0, length), "end_positions": _integers(0, length)}
    return makers if task in LM_TASKS else makers | {"labels": tokens}


def _tokens(module: nn.Module, config: Any, length: int) -> Make:
    """Token ids without special ones: a padding or an image token in the middle means something to a model."""
    return _integers(*_ordinary_ids(config, vocabulary_of(module, config)), length)


def _ordinary_ids(config: Any, vocabulary: int) -> tuple[int, int]:
    """The longest run of ids below `vocabulary` that no `…_id` of the config names: from, to (beyond the last)."""
    named = {
        value
        for part in config_parts(config)
        for key, value in part.to_dict().items()
        if key.endswith(("token_id", "token_index")) and isinstance(value, int) and 0 <= value < vocabulary
    }
    edges = [-1, *sorted(named), vocabulary]
    runs = [(low + 1, high) for low, high in pairwise(edges)]
    return max(runs, key=lambda run: run[1] - run[0])


def _ended(tokens: Make, config: Any) -> Make:
    """Encoder-decoders classify at the end-of-text token: every sample has exactly one, last."""
    end = getattr(config, "eos_token_id", None)
    if not getattr(config, "is_encoder_decoder", False) or not isinstance(end, int):
        return tokens

    def make(batch_size: int, generator: torch.Generator | None) -> torch.Tensor:
        ids = tokens(batch_size, generator)
        ids[:, -1] = end
        setattr(ids, COUNTS, {end: 1})
        return ids

    return make


def _audio_makers(content: dict[str, Any], module: nn.Module, config: Any) -> dict[str, Make]:
    name = input_name(module, "input_values")
    if content["task"] == "audio-classification":
        labels = _class_labels(config)
    elif getattr(config, "is_encoder_decoder", False):
        labels = _tokens(module, config, tokens_of(content, module, config))
    else:
        length = content.get("sequence_length") or LONGEST_TRANSCRIPT
        labels = _integers(*_ordinary_ids(config, first_of(config, "vocab_size") or 32), length)
    for shape in audio_shapes(content, config, name):
        makers = {name: _noise(*shape), "labels": labels}
        if _takes(module, makers):
            return makers
    asks = [name for name in signature(module.forward).parameters if name.endswith(("_ids", "_features", "_values"))]
    raise InvalidModel(
        "This audio model takes neither raw samples nor a spectrogram alone, and nothing else is made here; it takes "
        f"{', '.join(asks[:4]) or 'others'}. Describe the part to be trained, or give it as Python with its own data."
    )


def _takes(module: nn.Module, makers: dict[str, Make]) -> bool:
    """Whether the model runs on such a batch: tried on fake tensors, which costs no memory and no computing."""
    from probes.microtrain.huggingface_models import forward  # which builds on this module

    training = module.training
    module.eval()
    try:
        with _fake_mode(module), torch.no_grad():
            forward(module, {name: make(2, None) for name, make in makers.items()})
    except Exception:  # noqa: BLE001 - whatever a model raises on a shape it does not take
        return False
    finally:
        module.train(training)
    return True


def _fake_mode(module: nn.Module) -> FakeTensorMode:
    """The mode that a fake module was built under, or a new one that takes a real module as it is."""
    first = next(module.parameters(), None)
    return first.fake_mode if isinstance(first, FakeTensor) else FakeTensorMode(allow_non_fake_inputs=True)
