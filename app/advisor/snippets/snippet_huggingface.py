"""A Hugging Face config as Python that builds it, with random inputs for its task."""

from __future__ import annotations

import re
from typing import Any

from app.advisor.snippets.source import Source
from probes.workload.config import SPECIAL_FLOAT, SPECIAL_FLOATS
from probes.workload.description import Workload
from probes.workload.float_options import float_options
from probes.workload.huggingface import DEFAULT_IMAGE_SIDE, DEFAULT_SEQUENCE_LENGTH, max_positions

# Tasks whose inputs and labels a few lines can make for any architecture -> transformers' class.
TASKS = {
    "text-classification": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "causal-lm": "AutoModelForCausalLM",
    "masked-lm": "AutoModelForMaskedLM",
    "image-classification": "AutoModelForImageClassification",
}
# Their inputs need more than a few lines (an end token in each row, a start token for the decoder): the model types
# that transformers 5 has in its table of sequence-to-sequence models and in one of those above.
ENCODER_DECODERS = frozenset(
    (
        *("bart", "bigbird_pegasus", "blenderbot", "blenderbot-small", "marian", "mbart", "mt5", "mvp", "pegasus"),
        *("plbart", "prophetnet", "t5", "t5gemma", "t5gemma2", "umt5"),
    )
)
_FEED = "batch = {name: value.to(device, non_blocking=True) for name, value in batch.items()}"
# As repr writes what JSON has no number for.
_SPECIAL_FLOAT = re.compile(rf"\{{'{SPECIAL_FLOAT}': ('(?:{'|'.join(SPECIAL_FLOATS)})')\}}")


def can_write(workload: Workload) -> bool:
    """Whether a few lines are enough for this config and task."""
    content = workload.model.content
    return content["task"] in TASKS and content["config"]["model_type"] not in ENCODER_DECODERS


def source_of_config(workload: Workload) -> Source:
    """Random weights, eager, the model's own loss: as crosspoint measures it. Only where `can_write`."""
    content = workload.model.content
    config, task = content["config"], content["task"]
    rest = {name: value for name, value in _with_floats(config).items() if name != "model_type"}
    options = f", **{_python(rest)}" if rest else ""
    model = [
        f'config = AutoConfig.for_model("{config["model_type"]}"{options})',
        *_preparation(task),
        f"model = {TASKS[task]}.from_config(config)",
    ]
    inputs = _image(workload) if task == "image-classification" else _text(workload)
    return Source(
        imports=[f"from transformers import AutoConfig, {TASKS[task]}"],
        model="\n".join(model),
        batch=inputs,
        feed=[_FEED],
        forward="output = model(**batch)",
        loss=["loss = model(**batch).loss"],
    )


def _python(options: dict[str, Any]) -> str:
    return _SPECIAL_FLOAT.sub(r"float(\1)", repr(options))


def _with_floats(config: dict[str, Any], floats: frozenset[str] = frozenset()) -> dict[str, Any]:
    """A copy with floats where transformers takes no whole numbers: JSON that was read and written anew may have lost
    the ".0". floats: names of such options of the config around this one."""
    model_type = config.get("model_type")
    floats = float_options(model_type) if isinstance(model_type, str) else floats
    return {name: _as_taken(value, name in floats, floats) for name, value in config.items()}


def _as_taken(value: Any, is_float: bool, floats: frozenset[str]) -> Any:
    if isinstance(value, dict):
        return _with_floats(value, floats)
    if isinstance(value, list):
        return [_as_taken(item, is_float, floats) for item in value]
    return float(value) if is_float and type(value) is int else value  # true is no number


def _preparation(task: str) -> list[str]:
    """Decoders that classify look for the last token that is no padding, and refuse without a padding token. Where
    transformers has several classes for a model type it asks the config, which must not say None."""
    return {
        "text-classification": ["if config.pad_token_id is None:", "    config.pad_token_id = 0"],
        "image-classification": ["config.architectures = []  # where there are several classes, the first"],
    }.get(task, [])


def _text(workload: Workload) -> str:
    content, batch = workload.model.content, workload.batch_size
    limit = max_positions(content["config"]) or DEFAULT_SEQUENCE_LENGTH
    length = content.get("sequence_length") or min(DEFAULT_SEQUENCE_LENGTH, limit)
    labels = {
        "text-classification": f"torch.randint(config.num_labels, ({batch},))",
        "token-classification": f"torch.randint(config.num_labels, ({batch}, {length}))",
    }.get(content["task"], "tokens")
    return (
        f"tokens = torch.randint(1, config.get_text_config().vocab_size, ({batch}, {length}))\n"
        f'batch = {{"input_ids": tokens, "labels": {labels}}}'
    )


def _image(workload: Workload) -> str:
    content, batch = workload.model.content, workload.batch_size
    size = content.get("image_size")
    if size:
        sides = f"({size[0]}, {size[1]})"
        lines = [f'pixels = torch.randn({batch}, getattr(config, "num_channels", 3), *{sides})']
    else:
        lines = [
            f'side = getattr(config, "image_size", None) or {DEFAULT_IMAGE_SIDE}',
            "sides = side if isinstance(side, (list, tuple)) else (side, side)",
            f'pixels = torch.randn({batch}, getattr(config, "num_channels", 3), *sides)',
        ]
    labels = f"torch.randint(config.num_labels, ({batch},))"
    return "\n".join([*lines, f'batch = {{"pixel_values": pixels, "labels": {labels}}}'])
