"""Keys of a config that nothing reads and that are one letter away from one that is read: an answer would be another
model's, with the class' default in its place. Other keys that nothing reads are in many published configs."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterator
from dataclasses import fields, is_dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from probes.bounds import MAX_SUGGESTIONS
from probes.microtrain.building.config_floats import class_inside
from probes.microtrain.building.refused_configs import RENAMED
from probes.workload.config import IGNORED, REFUSED, Place
from probes.workload.description import InvalidModel
from probes.workload.wording import clean, join, place

# What transformers reads of a rotary model beside the fields of its class, with the field that it becomes.
_ROTARY = RENAMED | {"rope_theta": "rope_theta"}
# No suggestions: what is written there is left out, or taken out before transformers sees it.
_LEFT_OUT = {*IGNORED, *REFUSED, "architectures", "model_type"}
# In shorter words another letter is another thing: bos and eos, top_k and top_p, q_lora_rank and o_lora_rank.
_LEAST_CHANGED, _LEAST_LETTERS = 4, 3


def check_keys(model_type: str, kind: Any, options: dict[str, Any]) -> None:
    """Raises InvalidModel for keys that are misspelt. kind: transformers' config class of that model type."""
    found = list(_misspelt((), kind, options))[:MAX_SUGGESTIONS]
    if found:
        no, meant = join(f"no {place(where)}" for where, _ in found), tuple(dict.fromkeys(name for _, name in found))
        it = "it" if len(found) == 1 else "them"
        raise InvalidModel(
            f"{clean(model_type)} has {no}. Did you mean {join(meant)}? Write {it} so, or leave {it} out.", meant
        )


def _misspelt(where: Place, kind: Any, options: dict[str, Any]) -> Iterator[tuple[Place, str]]:
    """Each with the key that was meant, those of configs inside as well."""
    for key, meant in misspelt_keys(kind, options):
        yield (*where, key), meant
    for key, value in options.items():
        inner = class_inside(kind, key, value)
        if inner is not None:
            yield from _misspelt((*where, key), inner, value)


def misspelt_keys(kind: Any, written: Collection[str]) -> Iterator[tuple[str, str]]:
    """Pairs (key, the key that was meant) of what is written in a config of this class."""
    if not is_dataclass(kind):  # before transformers 5: which keys it reads is not told
        return
    read_as = _read_as(kind)
    set_already = {read_as.get(key, key) for key in written}
    unset = [name for name, real in read_as.items() if real not in set_already and name not in _LEFT_OUT]
    for key in written:
        meant = next((name for name in unset if is_one_letter_off(key, name)), None)
        if meant is not None and not (key in read_as or hasattr(kind, key) or _is_named(kind, key)):
            yield key, meant


def _read_as(kind: Any) -> dict[str, str]:
    """Every key that a config class takes, with the field that it is kept as."""
    own = {field.name: field.name for field in fields(kind)}
    rotary = _ROTARY if set(RENAMED.values()) <= own.keys() else {}
    return {"num_labels": "num_labels"} | own | rotary | (getattr(kind, "attribute_map", None) or {})


def is_one_letter_off(key: str, name: str) -> bool:
    """Whether one letter is missing, added, changed or swapped with its neighbour, in a word long enough for that to be
    a slip."""
    if key == name:
        return False
    at = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(key, name, strict=False))))
    mine, real = key[at:], name[at:]
    if mine[1:] == real[1:] and mine and real:
        return mine[0].isalpha() and real[0].isalpha() and _letters_around(name, at) >= _LEAST_CHANGED
    if mine[:2] == real[1::-1] and mine[2:] == real[2:]:
        return _letters_around(name, at) >= _LEAST_LETTERS
    if mine[1:] == real or mine == real[1:]:
        longer = max(key, name, key=len)
        return not longer[at].isdigit() and _letters_around(longer, at) >= _LEAST_LETTERS
    return False


def _letters_around(name: str, at: int) -> int:
    """Of the word in which a position of a name lies: names are words joined by underscores."""
    return len(name[:at].rpartition("_")[2]) + len(name[at:].partition("_")[0])


def _is_named(kind: Any, key: str) -> bool:
    """Whether the sources of a model type read such a key all the same, as classes do for configs of before."""
    module = sys.modules[kind.__module__].__file__
    folder = Path(module).parent if module else None
    if folder is None:
        return True
    word = re.escape(key)
    asked = {"configuration": rf"\b{word}\b", "modeling": rf"config\.{word}\b|[\"']{word}[\"']"}
    return any(
        re.search(pattern, path.read_text("utf-8"))
        for start, pattern in asked.items()
        for path in folder.glob(f"{start}_*.py")
    )
