"""What transformers' model classes say of a model type, read from their text: without importing it."""

from __future__ import annotations

import re
from functools import lru_cache

from probes.installed import Stamp, stamp_of
from probes.workload.config_classes import read_classes

# Sines that are made anew where more tokens come than there were rows (XGLM, M2M100, FSMT, Speech2Text).
_GROWS = re.compile(r"> self\.weights?\.size\(0\)")
_CONFIG = re.compile(r"^    config(?:_class)?\s*[:=]\s*(\w+)", re.MULTILINE)  # of a class's body
# Where a config chooses between these and sines, its usual choice is these (TrOCR).
_LEARNS = re.compile(r"^class \w*LearnedPositionalEmbedding\b", re.MULTILINE)


def are_positions_endless(model_type: str, options: tuple[str, ...]) -> bool:
    """Whether models of this type take more tokens than their config has positions, because they make them as tokens
    come, or because nothing reads that number (Jamba, Zamba).

    options: the names of that number. False where nobody knows, and for rotary models, whose configs tell of them
    (probes.workload.config_classes.is_rotary)."""
    stamp = stamp_of("transformers")
    return stamp is not None and _are_endless(model_type, options, stamp)


def config_class_of(model_type: str, name: str) -> str | None:
    """The config class that a model class of a model type's folder is made of. None where nobody knows."""
    stamp = stamp_of("transformers")
    return None if stamp is None else _config_class_of(model_type, name, stamp)


@lru_cache(maxsize=256)
def _config_class_of(model_type: str, name: str, stamp: Stamp) -> str | None:
    """stamp: of the transformers that is read."""
    _, _, body = read_classes(model_type, "modeling").partition(f"\nclass {name}(")
    found = _CONFIG.search(body.partition("\nclass ")[0])
    return found[1] if found is not None else None


@lru_cache(maxsize=256)
def _are_endless(model_type: str, options: tuple[str, ...], stamp: Stamp) -> bool:
    """stamp: of the transformers that is read."""
    source = read_classes(model_type, "modeling")
    if not source:
        return False
    return not _is_read(source, options) or bool(_GROWS.search(source) and not _LEARNS.search(source))


def _is_read(source: str, options: tuple[str, ...]) -> bool:
    """Whether there is anything of an option but that it is kept under its own name."""
    return any(
        re.search(rf"\b{name}\b", re.sub(rf"^\s+self\.{name} = config\.{name}$", "", source, flags=re.MULTILINE))
        for name in options
    )
