"""How large one sample of a Hugging Face model is: as asked for, else as the config says, else the usual."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import torch
from torch import nn

from probes.workload.huggingface import (
    DEFAULT_AUDIO_SAMPLES,
    DEFAULT_IMAGE_SIDE,
    default_sequence_length,
    max_positions,
    position_limit,
)

_STACKED = 2  # frames side by side as one row, of which there are half as many (SeamlessM4T, Wav2Vec2-BERT, Granite)
_WITH_DELTAS = 2  # times as wide is a frame with what it changed by beside it (Granite Speech 5)
# What configs call the width of stacked frames. One of Granite Speech answers to num_mel_bins, too: by the same number.
_STACKED_NAMES = ("feature_projection_input_dim", "input_dim")
_BAND_NAMES = ("num_mel_bins", "input_feat_per_channel", *_STACKED_NAMES, "input_size")
_FRAMES_TOGETHER = 64  # models that take several frames at a time take this many
# Classes that take images of any size and do not read their config's, which is another class's.
_SIZELESS = {"PerceiverForImageClassificationFourier", "PerceiverForImageClassificationConvProcessing"}
HOP_SAMPLES = 160  # between two frames of a spectrogram: 10 ms at 16 kHz, in transformers' feature extractors
_EMBEDDED_HOP_SAMPLES = 1024  # where frames are as wide as the model and are its tokens (Pop2Piano, at 22,050 Hz)


def config_parts(config: Any) -> Iterator[Any]:
    """The config and those nested in it for text, vision, audio and decoder."""
    yield config
    usual = ("text_config", "vision_config", "audio_config", "encoder", "decoder")
    further = sorted(name for name in vars(config) if name.endswith("_config") and name not in usual)
    for name in (*usual, *further):
        part = getattr(config, name, None)
        if hasattr(part, "to_dict"):
            yield part


def first_of(config: Any, *names: str) -> Any:
    """The first value that any part of the config has under one of the names; None: none has."""
    found = (getattr(part, name, None) for name in names for part in config_parts(config))
    return next((value for value in found if value is not None), None)


def token_limit(module: nn.Module, config: Any) -> int | None:
    """Tokens that a model has positions for, or was trained for; None: as many as are asked for."""
    return _least(max_positions(config.to_dict()), *_padded_tables(module))


def table_limit(module: nn.Module, config: Any, without: str = "") -> int | None:
    """Tokens beyond which it fails: a rotary model has no table of positions, and takes more than it was trained on.
    without: the half that does not count, as of probes.workload.huggingface.position_limit."""
    return _least(position_limit(config.to_dict(), without), *_padded_tables(module, without))


def _padded_tables(module: nn.Module, without: str = "") -> Iterator[int]:
    """Positions of tables of which some are set aside for padding (RoBERTa's two): those that are left. I-BERT's is no
    nn.Embedding; ProphetNet's, which keeps its `max_length`, is asked for the place after the last token's, too."""
    for name, child in module.named_modules():
        if without and without in name.split("."):
            continue
        padding, rows = getattr(child, "padding_idx", None), getattr(child, "weight", None)
        if name.endswith("position_embeddings") and padding is not None and isinstance(rows, torch.Tensor):
            yield rows.shape[0] - padding - 1 - hasattr(child, "max_length")


def _least(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)


def tokens_of(content: dict[str, Any], module: nn.Module, config: Any) -> int:
    """Tokens in a sample."""
    length: int | None = content.get("sequence_length") or _only_length(config)
    return length if length is not None else default_sequence_length(token_limit(module, config))


def _only_length(config: Any) -> int | None:
    """Tokens that a model is trained with, and no other number of them: Reformer's places are the rows and columns of
    a table that each sample fills. None: it takes several."""
    shape = getattr(config, "axial_pos_shape", None)
    return prod(shape) if shape and getattr(config, "axial_pos_embds", False) else None


def said_tokens_of(length: int, module: nn.Module, config: Any) -> int:
    """Tokens that a model is to say of a sample of so many: as many, unless its decoder has fewer positions."""
    return _least(length, table_limit(module, config, "encoder")) or length


def pixel_tokens(content: dict[str, Any], module: nn.Module, config: Any) -> int:
    """Tokens of an image that is a token a pixel: as many as the model has positions, unless a size is asked for."""
    size = content.get("image_size")
    return prod(size) if size else token_limit(module, config) or DEFAULT_IMAGE_SIDE**2


def vocabulary_of(module: nn.Module, config: Any) -> int:
    """Token ids lie below this: the config's vocabulary, and no more than the table of embeddings has rows."""
    sizes = [first_of(config, "vocab_size") or 256]  # without a vocabulary a model reads bytes
    return int(min(sizes + _embedded(module)))


def label_vocabulary_of(module: nn.Module, config: Any) -> int:
    """Token ids that are said lie below this: of an encoder-decoder no more than its decoder knows."""
    sizes = [vocabulary_of(module, config), getattr(config, "decoder_vocab_size", None)]
    if getattr(config, "is_encoder_decoder", False):
        sizes.append(getattr(getattr(config, "decoder", None), "vocab_size", None))
        sizes += _embedded(_asked(module, "get_decoder"))
    return min(size for size in sizes if isinstance(size, int))


def _embedded(module: Any) -> list[int]:
    """How many rows a model's table of embeddings has; none where it has no table."""
    table = _asked(module, "get_input_embeddings")
    return [table.num_embeddings] if isinstance(table, nn.Embedding) else []


def _asked(module: Any, method: str) -> Any:
    """What a method without arguments gives; None: there is none."""
    try:
        return getattr(module, method, lambda: None)()
    except (NotImplementedError, AttributeError):  # some models have no such part, and say so like this
        return None


def image_shape(content: dict[str, Any], config: Any) -> tuple[int, int, int]:
    """Channels, height, width."""
    sizeless = _SIZELESS & set(getattr(config, "architectures", None) or ())
    size = content.get("image_size") or (not sizeless and first_of(config, "image_size")) or DEFAULT_IMAGE_SIDE
    if isinstance(size, dict):
        size = [size.get("height", DEFAULT_IMAGE_SIDE), size.get("width", DEFAULT_IMAGE_SIDE)]
    height, width = (size, size) if isinstance(size, int) else tuple(size)[-2:]
    channels = first_of(config, "num_channels")
    return (channels if isinstance(channels, int) else 3, height, width)


def window_shapes(config: Any, name: str) -> list[tuple[int, ...]]:
    """Spectrograms of the one window that a model may take, which shorter sound is padded to (Whisper's 30 s).

    name: the model's main input.
    """
    (bands, *_), frames = _bands(config), first_of(config, "max_source_positions") or 0
    if name == "input_features":
        return [(bands, 2 * frames)] if frames else []
    fixed = first_of(config, "max_length") if name == "input_values" else None
    return [(fixed, bands)] if isinstance(fixed, int) and fixed > bands else []


def audio_shapes(content: dict[str, Any], config: Any, name: str) -> list[tuple[int, ...]]:
    """Shapes that a model's audio input may have, most likely first: raw samples, or a spectrogram either way round.

    Configs do not say which; the first that the model takes is right. name: the model's main input. A window comes
    after what is as long as was asked for.
    """
    samples = content.get("audio_samples") or DEFAULT_AUDIO_SAMPLES
    (bands, *others), frames = _bands(config), max(samples // HOP_SAMPLES, 1)
    rows, pairs = _rows(config, frames), -(-frames // _STACKED)
    even = -(-frames // _FRAMES_TOGETHER) * _FRAMES_TOGETHER
    raw: list[tuple[int, ...]] = [(samples,)] if name != "input_features" else []
    shapes: list[tuple[int, ...]] = [
        (rows.get(bands, frames), bands),
        (bands, frames),
        (1, frames, bands),
        (samples,),
        (bands, even),
        (1, samples),
    ]
    shapes += [(rows.get(width, frames), width) for width in others]
    shapes += [(pairs, _STACKED * _WITH_DELTAS * bands)]
    embedded = max(samples // _EMBEDDED_HOP_SAMPLES, 1)
    shapes += [(embedded, width)] if isinstance(width := first_of(config, "d_model", "hidden_size"), int) else []
    windows = window_shapes(config, name)
    return [*raw, *shapes, *windows] if content.get("audio_samples") else [*raw, *windows, *shapes]


def convolved_frames(config: Any, samples: int) -> int | None:
    """Frames that are left of raw samples by the convolutions that a config of wav2vec2's kind tells of, at most; None
    of others."""
    kernels, strides = getattr(config, "conv_kernel", None), getattr(config, "conv_stride", None)
    if not isinstance(kernels, list | tuple) or not isinstance(strides, list | tuple):
        return None
    for kernel, stride in zip(kernels, strides, strict=False):
        samples = max((samples - kernel) // stride + 1, 0)
    return samples


def _bands(config: Any) -> list[int]:
    """Bands of a spectrogram: what the config's parts say, likeliest first."""
    found = [getattr(part, name, None) for name in _BAND_NAMES for part in config_parts(config)]
    return list(dict.fromkeys(size for size in found if isinstance(size, int) and size > 1)) or [80]


def _rows(config: Any, frames: int) -> dict[int, int]:
    """By their width, how many rows a spectrogram of so many frames has where a row is several of them. Fun-ASR's share
    one with the next (its feature extractor's stride_lfr), and its width is worked out by its config's class."""
    found: dict[int, int] = {}
    for part in config_parts(config):
        for name in _STACKED_NAMES:
            if isinstance(width := getattr(part, name, None), int):
                found[width] = -(-frames // _STACKED)
        stacked, width = getattr(part, "num_stacked_frames", None), getattr(part, "input_size", None)
        if isinstance(stacked, int) and isinstance(width, int):
            found[width] = -(-frames // max(stacked - 1, 1))
    return found


def frames_of(shape: tuple[int, ...], config: Any) -> int:
    """How long a sample of this shape is: in frames of a spectrogram, whichever way round it is, or in numbers."""
    bands = _bands(config)
    return next((size for size in shape if size > 1 and (size not in bands or len(set(shape)) == 1)), max(shape))
