"""What transformers' config classes say of a model type, read from their text as probes.workload.architectures reads
the model types: without importing it."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from probes.installed import Stamp, stamp_of
from probes.workload.architectures import read_architectures

# As transformers 5 calls the option, and 4.57 did, a field of the class or an argument of its constructor.
_ROTARY = re.compile(r"^\s+(?:rope_parameters|rope_scaling)\s*[:=]", re.MULTILINE)

# From models/TYPE/ these dots lead to transformers itself.
_IMPORT = re.compile(r"^from \.\.\.(\w+) import ", re.MULTILINE)


def read_config_classes(model_type: str) -> str:
    """The text of those in a model type's folder. Empty where nobody knows."""
    stamp = stamp_of("transformers")
    return "" if stamp is None else _read_config_classes(model_type, stamp)


def read_classes(model_type: str, kind: str) -> str:
    """The text of the classes in a model type's folder. kind: as their files begin, `configuration` or `modeling`.
    Empty where nobody knows."""
    stamp = stamp_of("transformers")
    if stamp is None or model_type not in read_architectures().model_types:
        return ""
    folder = _folder(Path(stamp[0]).parent / "models", model_type)
    try:
        texts = [path.read_text("utf-8") for path in folder.glob(f"{kind}_*.py")] if folder is not None else []
    except OSError:
        return ""
    return "\n".join(texts)


def read_imported(classes: str) -> str:
    """The text of transformers' modules that config classes import by name: what all configs have, or some, as that of
    rotary positions. classes: the text of these. Empty where nobody knows."""
    stamp, names = stamp_of("transformers"), sorted(set(_IMPORT.findall(classes)))
    return "" if stamp is None else "\n".join(_read_module(name, stamp) for name in names)


def is_rotary(model_type: str) -> bool:
    """Whether models of this type turn what a token is by where it stands: they have no table of positions, and take
    more tokens than they were trained for."""
    return _ROTARY.search(read_config_classes(model_type)) is not None


@lru_cache(maxsize=64)
def _read_module(name: str, stamp: Stamp) -> str:
    try:
        return (Path(stamp[0]).parent / f"{name}.py").read_text("utf-8")
    except OSError:  # a package, as `utils`
        return ""


@lru_cache(maxsize=64)
def _read_config_classes(model_type: str, stamp: Stamp) -> str:
    """stamp: of the transformers that is read."""
    return read_classes(model_type, "configuration")


def _folder(models: Path, model_type: str) -> Path | None:
    """`gemma3_text` lies in that of gemma3."""
    words = re.split("[-_]", model_type)
    names = ("_".join(words[:count]) for count in range(len(words), 0, -1))
    return next((models / name for name in names if (models / name).is_dir()), None)
