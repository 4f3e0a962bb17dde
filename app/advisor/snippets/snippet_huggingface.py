"""A Hugging Face config as Python that builds it, with random inputs for its task."""

from __future__ import annotations

import re
from typing import Any

from app.advisor.snippets.source import Source
from probes.workload.config import SPECIAL_FLOAT, SPECIAL_FLOATS
from probes.workload.description import Workload
from probes.workload.huggingface import DEFAULT_IMAGE_SIDE, DEFAULT_SEQUENCE_LENGTH, max_positions

# Tasks whose inputs and labels a few lines can make for any architecture -> transformers' class.
TASKS = {
    "text-classification": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "causal-lm": "AutoModelForCausalLM",
    "masked-lm": "AutoModelForMaskedLM",
    "image-classification": "AutoModelForImageClassification",
}
# Their labels are their inputs, which go to a device once.
_LABELLED_BY_THEMSELVES = ("causal-lm", "masked-lm")
# Their inputs need more than a few lines: the model types that transformers 5 has in its table of sequence-to-sequence
# models and in one of those above (an end token in each row, a start token for the decoder), and others that take more
# than tokens or pixels (boxes, a language, an image) or other ones (characters, patches, colours), or leave the loss to
# whoever trains them. All of transformers 5.23 was held against what crosspoint feeds it.
FED_OTHERWISE = frozenset(
    (
        *("bart", "bigbird_pegasus", "blenderbot", "blenderbot-small", "marian", "mbart", "mt5", "mvp", "pegasus"),
        *("plbart", "prophetnet", "t5", "t5gemma", "t5gemma2", "umt5"),
        *("bros", "canine", "git", "imagegpt", "perceiver", "pp_lcnet", "shieldgemma2", "siglip2", "xmod"),
    )
)
# Trained with a length of its own that only the module tells, unless it is asked for (Reformer's axial positions).
_OWN_LENGTH = "reformer"
_PIN = "batch = {name: value.pin_memory() for name, value in batch.items()}"
_OWN_LABELS = ', labels=batch["input_ids"]'
_FEED = "batch = {name: value.to(device, non_blocking=True) for name, value in batch.items()}"
# As repr writes what JSON has no number for.
_SPECIAL_FLOAT = re.compile(rf"\{{'{SPECIAL_FLOAT}': ('(?:{'|'.join(SPECIAL_FLOATS)})')\}}")


def can_write(workload: Workload) -> bool:
    """Whether a few lines are enough for this config and task."""
    content = workload.model.content
    config, task = content["config"], content["task"]
    if task not in TASKS or config["model_type"] in FED_OTHERWISE:
        return False
    if task == "image-classification":  # a part's sizes are that part's to tell
        return not any(isinstance(value, dict) for value in config.values())
    if content.get("sequence_length") is not None:
        return True
    return config["model_type"] != _OWN_LENGTH and not _has_few_positions(config)


def _has_few_positions(config: dict[str, Any]) -> bool:
    """Whether a sample of the usual length may have more tokens than positions: some of these may be set aside for
    padding, which only the module tells (RoBERTa's two)."""
    limit = max_positions(config)
    return limit is not None and limit < 2 * DEFAULT_SEQUENCE_LENGTH


def source_of_config(workload: Workload) -> Source:
    """Random weights, eager, the model's own loss, which inference is not asked for: as crosspoint measures it. Only
    where `can_write`."""
    content = workload.model.content
    config, task = content["config"], content["task"]
    rest = {name: value for name, value in config.items() if name != "model_type"}
    options = f", **{_python(rest)}" if rest else ""
    model = [
        f'config = AutoConfig.for_model("{config["model_type"]}"{options})',
        *_preparation(task, config),
        f"model = {TASKS[task]}.from_config(config)",
    ]
    inputs = _image(workload) if task == "image-classification" else _text(workload)
    return Source(
        imports=[f"from transformers import AutoConfig, {TASKS[task]}"],
        model="\n".join(model),
        batch=inputs,
        pin=_PIN,
        feed=[_FEED],
        forward="output = model(**batch)",
        loss=[f"loss = model(**batch{_OWN_LABELS if task in _LABELLED_BY_THEMSELVES else ''}).loss"],
    )


def _python(options: dict[str, Any]) -> str:
    return _SPECIAL_FLOAT.sub(r"float(\1)", repr(options))


def _preparation(task: str, config: dict[str, Any]) -> list[str]:
    """Decoders that classify look for the last token that is no padding, and refuse without a padding token. Where
    transformers has several classes for a model type it asks the config, which must not say None."""
    if "architectures" in config:
        return []
    return {
        "text-classification": [
            "text = config.get_text_config()",
            'if getattr(text, "pad_token_id", None) is None:',
            "    text.pad_token_id = 0",
        ],
        "image-classification": ["config.architectures = []  # where there are several classes, the first"],
    }.get(task, [])


def _text(workload: Workload) -> str:
    content, batch = workload.model.content, workload.batch_size
    length = content.get("sequence_length") or DEFAULT_SEQUENCE_LENGTH
    tokens = f"tokens = torch.randint(1, config.get_text_config().vocab_size, ({batch}, {length}))"
    if content["task"] in _LABELLED_BY_THEMSELVES:
        return f"{tokens}\n{_batch(workload, input_ids='tokens')}"
    of_tokens = f"torch.randint(config.num_labels, ({batch}, {length}))"
    labels = of_tokens if content["task"] == "token-classification" else _class_labels(content["config"], batch)
    return f"{tokens}\n{_batch(workload, input_ids='tokens', labels=labels)}"


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
    labels = _class_labels(content["config"], batch)
    return "\n".join([*lines, _batch(workload, pixel_values="pixels", labels=labels)])


def _batch(workload: Workload, **values: str) -> str:
    """Labels only where a loss is asked for: a language model's takes more memory than its logits."""
    training = workload.mode == "training"
    items = (f'"{name}": {value}' for name, value in values.items() if training or name != "labels")
    return f"batch = {{{', '.join(items)}}}"


def _class_labels(config: dict[str, Any], batch: int) -> str:
    """One class a sample; numbers where the config says regression or several labels at once (transformers' own
    rule, loss_utils.ForSequenceClassificationLoss)."""
    alone, problem = config.get("num_labels") == 1, config.get("problem_type")
    if problem == "multi_label_classification":
        return f"torch.rand({batch}, config.num_labels)"
    if problem == "regression" or alone:
        return f"torch.randn({batch})" if alone else f"torch.randn({batch}, config.num_labels)"
    return f"torch.randint(config.num_labels, ({batch},))"
