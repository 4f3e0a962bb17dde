"""The content of a Hugging Face config.json, checked: data, never code, and nothing that grows beyond its bounds."""

from __future__ import annotations

import re
from math import isfinite
from typing import Any

from probes.bounds import (
    MAX_CONFIG_COUNT,
    MAX_CONFIG_ENTRIES,
    MAX_CONFIG_EXPERTS,
    MAX_CONFIG_FREE_INTEGER,
    MAX_CONFIG_INTEGER,
    MAX_CONFIG_LABELS,
    MAX_CONFIG_NUMBER,
    MAX_CONFIG_STRING,
    MAX_JSON_DEPTH,
    MIN_CONFIG_INTEGER,
)
from probes.workload.description import InvalidModel
from probes.workload.wording import clean, describe, join, place

# Keys that make transformers load something else than this config, with what to do instead.
REFUSED = {
    "auto_map": "it names code to load from elsewhere, and transformers' own class of that model_type is taken",
    "trust_remote_code": "remote code is never run",
    "code": "code is never run",
    "custom_pipelines": "they are code",
    "custom_generate": "it is code",
    "quantization_config": "weights are made anew and at random, so there is nothing to quantize",
    "_name_or_path": "nothing is loaded by name; the config alone says what the model is",
    "name_or_path": "nothing is loaded by name; the config alone says what the model is",
    "pretrained_model_name_or_path": "nothing is loaded by name; the config alone says what the model is",
    "gguf_file": "no file is read",
    "backbone": "it is loaded by name; write its config as backbone_config",
    "use_pretrained_backbone": "nothing is downloaded; write the backbone's config as backbone_config",
    "backbone_kwargs": "they belong to a backbone that is loaded by name; write backbone_config",
}
MAX_NAMED = 6  # of those in one sentence; published configs have up to three
# Keys that say nothing about what is trained: provenance, generation, the form of outputs, the weights' dtype (the
# plan's to choose), and whose kernels run it (torch's: others would have to be installed, or are loaded as code).
IGNORED = {
    "attn_implementation", "experts_implementation",
    "transformers_version", "torch_dtype", "dtype", "id2label", "label2id", "task_specific_params", "finetuning_task",
    "prefix", "license", "tokenizer_class", "tokenizer_name", "language", "processor_class", "generation_config",
    "torchscript", "return_dict", "use_return_dict", "output_attentions", "output_hidden_states",
}  # fmt: skip
# Keys that look like transformers' own notes, which begin like this, and say what is built (OPT's last norm).
_PRIVATE = {"_remove_final_layer_norm"}
# But for values that say what is computed: attention step by step, which keeps its scores for the backward.
ATTENTION = "attn_implementation"
KEPT = {ATTENTION: "eager"}
_COUNTED = {"layer", "layers", "depth", "depths", "block", "blocks", "stage", "stages", "repeat", "repeats", "experts"}
_NOT_COUNTED = {
    "size", "dim", "id", "ids", "capacity", "width", "norm", "scale", "token", "tokens", "length", "max", "channels",
    "theta",
}  # fmt: skip
_FREE = {"id", "ids", "seed", "length", "index"}
# Last words of keys whose numbers are no sizes but floats, which JSON may have as whole numbers.
_SIZELESS = {"theta", "clipping", "value", "val"}
_SIZES = {
    "hidden_size", "d_model", "n_embd", "vocab_size", "intermediate_size", "num_attention_heads", "n_head", "n_heads",
    "num_labels", "num_channels", "image_size", "patch_size", "head_dim", "max_position_embeddings", "n_positions",
    "num_key_value_heads", "encoder_attention_heads", "decoder_attention_heads", "ffn_dim", "d_ff", "num_mel_bins",
}  # fmt: skip
# One whole number in every model type of transformers 5, never a list; the first are never null either.
_NEVER_NULL = {"hidden_size", "d_model", "n_embd", "n_layer", "n_head"}
_NEVER_LISTS = _NEVER_NULL | {
    "vocab_size", "num_hidden_layers", "n_layers", "n_heads", "encoder_layers", "decoder_layers",
    "encoder_attention_heads", "decoder_attention_heads", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff",
}  # fmt: skip
_WHOLE = _SIZES | _NEVER_LISTS
_NUMBERS = ("num_", "n_")  # how keys begin that are numbers and nothing else
_SHARES = {"dropout", "prob", "probs", "pdrop", "eps", "epsilon"}  # words of keys that are numbers and never names
_PATH = re.compile(r"[/\\]|^[~.]|^[A-Za-z]:|\.(py|json|bin|pt|pth|ckpt|safetensors|gguf|h5|onnx)$")
_TOKEN = re.compile(r"</?[\w|]+>")  # a token as tokenizers write it: </s>, not a path
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_.\- ]{0,99}|\d{1,6}")  # a number is a layer's, as in Gemma 4's per_layer_config
# How transformers writes what JSON has no number for (Mamba 2's time_step_limit).
SPECIAL_FLOAT, SPECIAL_FLOATS = "__float__", ("Infinity", "-Infinity", "NaN")
# What a class works out by itself and writes down all the same.
_WORKED_OUT = {"num_hidden_layers": "lxmert"}

Place = tuple[str, ...]  # the keys on the way to a value, `huggingface` first


def check_config(config: dict[str, Any]) -> dict[str, Any]:
    """A copy with what matters for the architecture, `num_labels` in place of the labels' names.

    Raises InvalidModel for code, paths, URLs, and for numbers or nesting beyond the bounds.
    """
    reader = _Reader()
    checked = reader.read_object(("huggingface",), _with_public_attention(config), 0)
    if reader.refused:
        raise InvalidModel(_say_refused(reader.refused))
    return checked


def _say_refused(refused: list[tuple[Place, str]]) -> str:
    """All at once: each is one more round for whoever pastes a config."""
    named = [(f'"{key}" from {place(where)}', REFUSED[key]) for where, key in refused[:MAX_NAMED]]
    text = f"{named[0][0]}: {named[0][1]}" if len(named) == 1 else join(f"{what} ({why})" for what, why in named)
    more = f", and {len(refused) - MAX_NAMED} more of such keys" if len(refused) > MAX_NAMED else ""
    return f"Remove {text}{more}. A config here is data, never code."


def _with_public_attention(config: dict[str, Any]) -> dict[str, Any]:
    """With the spelling that some published configs have, which transformers sets last, in place of the public one. In
    a config within another it makes nothing of either."""
    private = f"_{ATTENTION}"
    return {**config, ATTENTION: config[private]} if private in config else config


class _Reader:
    """Counts entries over the whole config while it copies, and gathers what is refused in it."""

    def __init__(self) -> None:
        self.entries = 0
        self.refused: list[tuple[Place, str]] = []  # keys that would load something, and what they stand in

    def read_object(self, where: Place, written: dict[str, Any], depth: int) -> dict[str, Any]:
        checked: dict[str, Any] = {}
        labels = _count_labels(where, written)
        for key, value in written.items():
            worked_out = key in _WORKED_OUT and written.get("model_type") == _WORKED_OUT[key]
            if key in REFUSED and value not in (None, "", False) and value != {}:
                self.refused.append((where, key))
            if worked_out or not _wanted(where, key, value):
                continue
            self.count(where)
            checked[key] = self.read((*where, key), key, value, depth + 1)
        return checked if labels is None else checked | {"num_labels": labels}

    def read(self, where: Place, key: str, value: Any, depth: int) -> Any:
        if depth > MAX_JSON_DEPTH:
            raise InvalidModel(f"The huggingface config nests deeper than {MAX_JSON_DEPTH} levels; no model does.")
        if (key in _NEVER_LISTS and isinstance(value, dict | list)) or (key in _NEVER_NULL and value is None):
            raise InvalidModel(f"{place(where)} is {describe(value)}; a whole number is expected.")
        if isinstance(value, dict) and list(value) == [SPECIAL_FLOAT] and value[SPECIAL_FLOAT] in SPECIAL_FLOATS:
            return dict(value)
        if isinstance(value, dict):
            return self.read_object(where, value, depth)
        if isinstance(value, list):
            return [self.read_item(where, key, item, depth) for item in value]
        return _read_scalar(where, key, value)

    def read_item(self, where: Place, key: str, item: Any, depth: int) -> Any:
        self.count(where)
        return self.read(where, key, item, depth + 1)

    def count(self, where: Place) -> None:
        self.entries += 1
        if self.entries > MAX_CONFIG_ENTRIES:
            raise InvalidModel(
                f"The huggingface config has more than {MAX_CONFIG_ENTRIES} entries; no model needs them."
            )


def _wanted(where: Place, key: Any, value: Any) -> bool:
    """Whether a key is to be kept. Raises InvalidModel for keys that no config has."""
    if key in REFUSED or (key in IGNORED and not (key in KEPT and value == KEPT[key])):
        return False
    if key in _PRIVATE:
        return True
    if isinstance(key, str) and key.startswith("_") and not key.startswith("__"):
        return False  # transformers' own notes
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        raise InvalidModel(f'{place(where)} has a key "{clean(key)}" that no config has. Remove it.')
    return True


def _count_labels(where: Place, written: dict[str, Any]) -> int | None:
    """How many labels id2label names; None: it is not there."""
    names = written.get("id2label")
    if names is None:
        return None
    if not isinstance(names, dict | list) or not 1 <= len(names) <= MAX_CONFIG_LABELS:
        raise InvalidModel(
            f'{place(where)}: "id2label" must name 1 to {MAX_CONFIG_LABELS} labels; or write num_labels.'
        )
    return len(names)


def _read_scalar(where: Place, key: str, value: Any) -> Any:
    if isinstance(value, str):
        return _read_string(where, value)
    if value is None:
        return None
    if isinstance(value, bool):
        if key in _WHOLE or (_is_count(key) and key.startswith(_NUMBERS)):  # first_layer_is_expansion is yes or no
            raise InvalidModel(f"{place(where)} is {describe(value)}; a whole number is expected.")
        return value
    if key in _WHOLE and isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int):
        return _read_integer(where, key, value)
    if not isinstance(value, float) or not isfinite(value) or abs(value) > MAX_CONFIG_NUMBER:
        raise InvalidModel(f"{place(where)} is {describe(value)}; a finite number is expected.")
    if key in _WHOLE:
        raise InvalidModel(f"{place(where)} is {describe(value)}; a whole number is expected.")
    if _is_count(key) and not 0 <= value <= MAX_CONFIG_COUNT:
        raise InvalidModel(f"{place(where)} is {describe(value)}; a whole number up to {MAX_CONFIG_COUNT} is expected.")
    return value


def _read_integer(where: Place, key: str, value: int) -> int:
    words = set(key.split("_"))
    if (key.split("_")[-1] in _SIZELESS or "theta" in words) and not (key in _WHOLE or _is_count(key)):
        return _bounded(where, value, -MAX_CONFIG_NUMBER, MAX_CONFIG_NUMBER)
    most = MAX_CONFIG_EXPERTS if "experts" in words else MAX_CONFIG_COUNT
    high = most if _is_count(key) else MAX_CONFIG_FREE_INTEGER if words & _FREE else MAX_CONFIG_INTEGER
    low = 1 if key in _SIZES else 0 if _is_count(key) and words & {"num", "n", "layers"} else MIN_CONFIG_INTEGER
    return _bounded(where, value, low, high)


def _bounded(where: Place, value: int, low: float, high: float) -> int:
    if low <= value <= high:
        return value
    raise InvalidModel(f"{place(where)} is {describe(value)}; it must lie between {low} and {high}.")


def _read_string(where: Place, value: str) -> str:
    if len(value) > MAX_CONFIG_STRING or not value.isprintable() or clean(value[:30]) != value[:30].strip():
        raise InvalidModel(f"{place(where)} is not a name: it is too long or not printable. Remove it.")
    if _PATH.search(value) and not _TOKEN.fullmatch(value):
        raise InvalidModel(f"{place(where)} looks like a path or a URL. Nothing is read or downloaded. Remove it.")
    key = where[-1]
    if set(key.split("_")) & _SHARES:
        raise InvalidModel(f"{place(where)} is {describe(value)}; a number is expected.")
    if _is_count(key) or key in _WHOLE:
        if value.isdigit():
            raise InvalidModel(f"{place(where)} is a string; write the number without quotes.")
        if key in _WHOLE:
            raise InvalidModel(f"{place(where)} is {describe(value)}; a whole number is expected.")
    return value


def _is_count(key: str) -> bool:
    """Whether a key says how often something is built."""
    words = set(key.lower().split("_"))
    return bool(words & _COUNTED) and not words & _NOT_COUNTED
