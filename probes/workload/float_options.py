"""Options of a config that take floats and no whole numbers, read from the text of transformers' config classes as
probes.workload.architectures reads the model types: without importing it."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from probes.installed import Stamp, stamp_of
from probes.workload.architectures import read_architectures

# `layer_norm_eps: float = 1e-12`: classes have such fields since transformers 5, and took any number before.
_FIELD = re.compile(r"^    (\w+): ([^=\n]*\bfloat\b[^=\n]*)=", re.MULTILINE)
_TAKES_MORE = re.compile(r"\b(?:int|dict)\b")


def float_options(model_type: str) -> frozenset[str]:
    """Of the config classes in a model type's folder. Empty where nobody knows."""
    stamp = stamp_of("transformers")
    if stamp is None or model_type not in read_architectures().model_types:
        return frozenset()
    return _read_float_options(model_type, stamp)


@lru_cache(maxsize=1024)  # there are fewer model types
def _read_float_options(model_type: str, stamp: Stamp) -> frozenset[str]:
    folder = _folder(Path(stamp[0]).parent / "models", model_type)
    try:
        texts = [path.read_text("utf-8") for path in folder.glob("configuration_*.py")] if folder is not None else []
    except OSError:
        return frozenset()
    return parse_float_options("\n".join(texts))


def parse_float_options(source: str) -> frozenset[str]:
    """From the text of config classes."""
    return frozenset(name for name, taken in _FIELD.findall(source) if not _TAKES_MORE.search(taken))


def _folder(models: Path, model_type: str) -> Path | None:
    """`gemma3_text` lies in that of gemma3."""
    words = re.split("[-_]", model_type)
    names = ("_".join(words[:count]) for count in range(len(words), 0, -1))
    return next((models / name for name in names if (models / name).is_dir()), None)
