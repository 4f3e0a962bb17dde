"""Options of a config that take floats and no whole numbers."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from probes.workload.config_classes import read_config_classes

# `layer_norm_eps: float = 1e-12`: classes have such fields since transformers 5, and took any number before.
_FIELD = re.compile(r"^    (\w+): ([^=\n]*\bfloat\b[^=\n]*)=", re.MULTILINE)
_TAKES_MORE = re.compile(r"\b(?:int|dict)\b")


def with_float_options(config: dict[str, Any]) -> dict[str, Any]:
    """A copy of a checked config, with floats where transformers takes no whole numbers: JSON that was read and written
    anew may have lost the ".0". The model's key is the same (ModelDescription.key)."""
    return _with_floats(config, frozenset())


def _with_floats(config: dict[str, Any], floats: frozenset[str]) -> dict[str, Any]:
    """floats: names of such options of the config around this one."""
    model_type = config.get("model_type")
    floats = float_options(model_type) if isinstance(model_type, str) else floats
    return {name: _as_taken(value, name in floats, floats) for name, value in config.items()}


def _as_taken(value: Any, is_float: bool, floats: frozenset[str]) -> Any:
    if isinstance(value, dict):
        return _with_floats(value, floats)
    if isinstance(value, list):
        return [_as_taken(item, is_float, floats) for item in value]
    if is_float and type(value) is int:  # true is no number
        return float(value) if float(value) == value else value  # one that no float holds would change the model's key
    return value


def float_options(model_type: str) -> frozenset[str]:
    """Of the config classes in a model type's folder. Empty where nobody knows."""
    return parse_float_options(read_config_classes(model_type))


@lru_cache(maxsize=64)
def parse_float_options(source: str) -> frozenset[str]:
    """From the text of config classes."""
    return frozenset(name for name, taken in _FIELD.findall(source) if not _TAKES_MORE.search(taken))
