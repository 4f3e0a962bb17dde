"""Options of a config that take floats and no whole numbers."""

from __future__ import annotations

import re
from functools import lru_cache

from probes.workload.config_classes import read_config_classes

# `layer_norm_eps: float = 1e-12`: classes have such fields since transformers 5, and took any number before.
_FIELD = re.compile(r"^    (\w+): ([^=\n]*\bfloat\b[^=\n]*)=", re.MULTILINE)
_TAKES_MORE = re.compile(r"\b(?:int|dict)\b")


def float_options(model_type: str) -> frozenset[str]:
    """Of the config classes in a model type's folder. Empty where nobody knows."""
    return parse_float_options(read_config_classes(model_type))


@lru_cache(maxsize=64)
def parse_float_options(source: str) -> frozenset[str]:
    """From the text of config classes."""
    return frozenset(name for name, taken in _FIELD.findall(source) if not _TAKES_MORE.search(taken))
