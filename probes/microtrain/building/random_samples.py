"""Random batches that a Hugging Face model takes: inputs of the right kind, and labels for its own loss."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from inspect import signature
from itertools import pairwise
from math import isqrt
from typing import Any

import torch
from torch import nn

from probes.microtrain.building.built import MakeBatch
from probes.microtrain.building.makers import Make, filled, integers, noise, repeated
from probes.microtrain.building.sample_sizes import (
    HOP_SAMPLES,
    audio_shapes,
    config_parts,
    convolved_frames,
    first_of,
    frames_of,
    image_shape,
    label_vocabulary_of,
    pixel_tokens,
    said_tokens_of,
    token_limit,
    tokens_of,
    vocabulary_of,
    window_shapes,
)
from probes.microtrain.building.tried_samples import Asked
from probes.microtrain.traces.number_facts import COUNTS
from probes.workload.description import InvalidModel
from probes.workload.huggingface import AUDIO_TASKS, DEFAULT_AUDIO_SAMPLES, IMAGE_TASKS

LABELS = ("labels", "start_positions", "end_positions")
LM_TASKS = ("causal-lm", "masked-lm")
BOXES = 36  # regions of an image: what published bottom-up features have (Anderson et al. 2018)
LONGEST_TRANSCRIPT = 32  # characters in a second of speech, roughly; CTC needs fewer than output frames


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


def takes_colours(module: nn.Module) -> bool:
    """Of a model of images: whether these are rows of colours, a token each (ImageGPT)."""
    return input_name(module, "pixel_values") == "input_ids" and not _takes(module, "pixel_values")


def _takes(module: nn.Module, name: str) -> bool:
    return name in signature(module.forward).parameters


def _image_makers(content: dict[str, Any], module: nn.Module, config: Any) -> dict[str, Make]:
    shape = image_shape(content, config)
    if input_name(module, "pixel_values") == "input_ids":
        length = (pixel_tokens if takes_colours(module) else tokens_of)(content, module, config)
        return {"input_ids": _tokens(module, config, length), "labels": _class_labels(config)}
    if _takes(module, "spatial_shapes"):
        return _patches(content, shape, config) | {"labels": _class_labels(config)}
    labels = (
        integers(0, config.num_labels, *shape[1:])
        if content["task"] == "semantic-segmentation"
        else _class_labels(config)
    )
    return {input_name(module, "pixel_values"): noise(*shape), "labels": labels}


def _patches(content: dict[str, Any], shape: tuple[int, int, int], config: Any) -> dict[str, Make]:
    """An image cut into rows of patches, as many either way as go into it; without a size as many as the config says,
    which transformers' image processor pads every image to (SigLIP 2)."""
    channels, height, width = shape
    side, usual = first_of(config, "patch_size") or 16, first_of(config, "num_patches")
    rows, columns = max(height // side, 1), max(width // side, 1)
    if isinstance(usual, int) and not (content.get("image_size") or first_of(config, "image_size")):
        rows = columns = max(isqrt(usual), 1)
    return {
        "pixel_values": noise(rows * columns, channels * side * side),
        "pixel_attention_mask": filled(1, rows * columns),
        "spatial_shapes": repeated(rows, columns),
    }


def _class_labels(config: Any) -> Make:
    """One class a sample; numbers where the config says regression or several labels at once (transformers' own
    rule, loss_utils.ForSequenceClassificationLoss)."""
    if config.problem_type == "multi_label_classification":
        return lambda batch_size, generator: torch.rand(batch_size, config.num_labels, generator=generator)
    if config.problem_type == "regression" or config.num_labels == 1:
        return noise() if config.num_labels == 1 else noise(config.num_labels)
    return integers(0, config.num_labels)


def _sound_labels(config: Any) -> list[Make]:
    """As above where a model goes by its config; else one class a sample, which most that hear take whatever it
    says."""
    told = config.problem_type or ("regression" if config.num_labels == 1 else "single_label_classification")
    classes = integers(0, config.num_labels)
    return [classes] if told == "single_label_classification" else [_class_labels(config), classes]


def _text_makers(content: dict[str, Any], module: nn.Module, config: Any) -> dict[str, Make]:
    """Text alone, where the model takes that; else with what it takes beside it."""
    alone = _texts(content, module, config, tokens_of(content, module, config))
    beside = _beside(content, module, config, tokens_of(content, module, config))
    usual = input_name(module, "input_ids") == "input_ids"
    heard = _takes(module, "input_features")
    if usual and not beside and not heard:
        return alone
    longest = _texts(content, module, config, token_limit(module, config) or 1)
    kinds = [alone, alone | beside, *([] if usual else [longest])]
    found = Asked(module).first_taken(kinds, content["task"])
    return _audio_makers(content, module, config) if found is None and heard else found or alone


def _texts(content: dict[str, Any], module: nn.Module, config: Any, length: int) -> dict[str, Make]:
    task = content["task"]
    tokens = _tokens(module, config, length)
    makers = {input_name(module, "input_ids"): tokens}
    if task == "text-classification":
        makers[next(iter(makers))] = _ended(tokens, config)
        return makers | {"labels": _class_labels(config)}
    if task == "token-classification":
        return makers | {"labels": integers(0, config.num_labels, length)}
    if task == "question-answering":
        makers[next(iter(makers))] = _separated(tokens, config, length)
        return makers | _answers(module, config, length)
    if task in LM_TASKS:
        return makers
    return makers | {"labels": _said(module, config, said_tokens_of(length, module, config))}


def _answers(module: nn.Module, config: Any, length: int) -> dict[str, Make]:
    """Where the answer stands; or which one it is, where a model knows them all."""
    if _takes(module, "start_positions"):
        return {"start_positions": integers(0, length), "end_positions": integers(0, length)}
    return {"labels": integers(0, getattr(config, "num_qa_labels", config.num_labels))}


def _beside(content: dict[str, Any], module: nn.Module, config: Any, length: int) -> dict[str, Make]:
    """What this model takes beside text."""
    features, places = getattr(config, "visual_feat_dim", None), getattr(config, "visual_pos_dim", None)
    known: dict[str, Make] = {
        "bbox": lambda batch_size, generator: torch.rand(batch_size, length, 4, generator=generator),
        "lang_ids": filled(0),
        "pixel_values": noise(*image_shape(content, config)),
    }
    if isinstance(features, int) and isinstance(places, int):
        known |= {"visual_feats": noise(BOXES, features), "visual_pos": noise(BOXES, places)}
    return {name: known[name] for name in signature(module.forward).parameters if name in known}


def _separated(tokens: Make, config: Any, length: int) -> Make:
    """A question, its two marks, a text and its mark: where the config names the mark a model may look for it."""
    mark, places = getattr(config, "sep_token_id", None), [length // 4, length // 4 + 1, length - 1]
    if not isinstance(mark, int) or len(set(places)) < len(places):
        return tokens

    def make(batch_size: int, generator: torch.Generator | None) -> torch.Tensor:
        ids = tokens(batch_size, generator)
        ids[:, places] = mark
        setattr(ids, COUNTS, {mark: len(places)})
        return ids

    return make


def _tokens(module: nn.Module, config: Any, length: int) -> Make:
    """Token ids without special ones: a padding or an image token in the middle means something to a model."""
    return integers(*_ordinary_ids(config, vocabulary_of(module, config)), length)


def _said(module: nn.Module, config: Any, length: int) -> Make:
    """Token ids that a model is to say, which a decoder may have fewer of."""
    return integers(*_ordinary_ids(config, label_vocabulary_of(module, config)), length)


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
    if (makers := _sounds_taken(content, module, config)) is not None:
        return makers
    samples = content.get("audio_samples") or DEFAULT_AUDIO_SAMPLES
    usual = content | {"audio_samples": DEFAULT_AUDIO_SAMPLES}
    if samples < DEFAULT_AUDIO_SAMPLES and _sounds_taken(usual, module, config) is not None:
        raise InvalidModel(f"audio_samples is {samples}, too few for this model. It takes {DEFAULT_AUDIO_SAMPLES}.")
    asks = [name for name in signature(module.forward).parameters if name.endswith(("_ids", "_features", "_values"))]
    raise InvalidModel(
        "This audio model takes neither raw samples nor a spectrogram, alone or after a prompt, and nothing else is "
        f"made here; it takes {', '.join(asks[:4]) or 'others'}. Describe the part to be trained, or give it as Python "
        "with its own data."
    )


def _sounds_taken(content: dict[str, Any], module: nn.Module, config: Any) -> dict[str, Make] | None:
    takes = signature(module.forward).parameters
    main = input_name(module, "input_values")
    name = next((sound for sound in (main, "input_features", "input_values") if sound in takes and sound in SOUNDS), "")
    prompted = main == "input_ids" and not getattr(config, "is_encoder_decoder", False)
    asked = Asked(module)
    for shape in audio_shapes(content, config, name) if name else ():
        frames = frames_of(shape, config)
        sound = {name: noise(*shape)} | _sound_masks(takes, name, frames)
        kind = (
            _prompts(content, module, config, sound, asked.sound_tokens(sound) or 0)
            if prompted
            else _plain(content, module, config, sound, frames)
        )
        if (makers := asked.first_taken(kind)) is not None:
            if shape in window_shapes(config, name):
                _check_window(content, frames * HOP_SAMPLES)
            return makers
    return None


def _check_window(content: dict[str, Any], window: int) -> None:
    """Raises InvalidModel where more sound is asked for than a model hears at once."""
    samples = content.get("audio_samples") or 0
    if samples > window:
        raise InvalidModel(
            f"audio_samples is {samples}, too many for this model, which hears a window of {window}. Take at most "
            f"{window}: what is longer is several windows, each of which counts in the batch."
        )


SOUNDS = ("input_features", "input_values")


def _sound_masks(takes: Iterable[str], name: str, frames: int) -> dict[str, Make]:
    """Which frames are sound: all of them."""
    return {f"{name}_mask": filled(1, frames)} if f"{name}_mask" in takes else {}


def _plain(
    content: dict[str, Any], module: nn.Module, config: Any, sound: dict[str, Make], frames: int
) -> Iterator[dict[str, Make]]:
    """Sound and what is to be made of it; with a mask for models that ask how long the sound is."""
    if content["task"] == "audio-classification":
        kinds = _sound_labels(config)
    elif getattr(config, "is_encoder_decoder", False):
        kinds = [_said(module, config, tokens_of(content, module, config))]
    else:
        length = _transcript_length(content, config)
        kinds = [integers(*_ordinary_ids(config, first_of(config, "vocab_size") or 32), length)]
    for labels in kinds:
        yield sound | {"labels": labels}
        if _takes(module, "attention_mask"):
            yield sound | {"attention_mask": filled(1, frames), "labels": labels}


def _transcript_length(content: dict[str, Any], config: Any) -> int:
    """Characters. Raises InvalidModel where they are more than the frames that a CTC model of raw samples makes of its
    sound: its loss would be infinite, and its weights no numbers after one step."""
    samples, asked = content.get("audio_samples") or DEFAULT_AUDIO_SAMPLES, content.get("sequence_length")
    frames = convolved_frames(config, samples)
    if frames is None or (asked or LONGEST_TRANSCRIPT) <= frames:
        return asked or LONGEST_TRANSCRIPT
    if asked is None:
        return max(frames, 1)
    raise InvalidModel(
        f"sequence_length is {asked}, more characters than the {frames} frames that this model makes of {samples} "
        f"samples of sound. Take at most {frames}, or more audio_samples."
    )


def _prompts(
    content: dict[str, Any], module: nn.Module, config: Any, sound: dict[str, Make], places: int
) -> Iterator[dict[str, Make]]:
    """A token in the prompt's place for each piece of sound, and text after it; or the sound's tokens alone. places:
    tokens that the sound takes there."""
    low, high = _ordinary_ids(config, vocabulary_of(module, config))
    token = first_of(config, "audio_token_id", "audio_token_index", "speech_token_id")
    length = content.get("sequence_length") or LONGEST_TRANSCRIPT
    alone = dict(list(sound.items())[:1])  # a mask may be of what the sound becomes instead of its frames
    for text, heard in ((length, sound), (length, alone), (0, sound)) if places else ():
        ids = _marked(integers(low, high, places + text), token if isinstance(token, int) else low, places)
        yield {"input_ids": ids, **heard, "labels": ids}


def _marked(tokens: Make, mark: int, places: int) -> Make:
    """The mark in the first places of each sample."""

    def make(batch_size: int, generator: torch.Generator | None) -> torch.Tensor:
        ids = tokens(batch_size, generator)
        ids[:, :places] = mark
        setattr(ids, COUNTS, {mark: places})
        return ids

    return make
