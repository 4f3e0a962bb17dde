"""Whole numbers of a config as the floats that its class takes: JSON has one kind of number, and what reads a config
and writes it anew (JavaScript, jq) makes 0 of 0.0. Since transformers 5 a config class refuses that 0."""

from __future__ import annotations

from collections.abc import Sequence
from types import UnionType
from typing import Any, Union, get_args, get_origin

Types = tuple[Any, ...]
_LISTS: Types = (list, tuple, Sequence)  # of a config's annotations, which JSON writes as lists


def with_floats(kind: Any, options: dict[str, Any]) -> dict[str, Any]:
    """The options of a config of this class, those of configs inside as theirs. kind: one of transformers' classes."""
    fields = getattr(kind, "__dataclass_fields__", {})  # before transformers 5 none had any, and any number was taken
    changed = dict(options)
    for name, value in options.items():
        inner = class_inside(kind, name, value)
        if inner is not None:
            changed[name] = with_floats(inner, value)
        elif name in fields:
            changed[name] = _as_taken(_alternatives(fields[name].type), value)
    return changed


def class_inside(kind: Any, name: str, value: Any) -> Any:
    """The class of a config that stands inside another. None: it is no config, or transformers does not say which."""
    found = (getattr(kind, "sub_configs", None) or {}).get(name)
    if found is None or not isinstance(value, dict):
        return None
    if hasattr(found, "__dataclass_fields__"):
        return found
    from transformers import CONFIG_MAPPING  # loaded by now: whoever has a class of its has it

    usual = (getattr(kind, "sub_configs_defaults", None) or {}).get(name)
    model_type = value.get("model_type", getattr(usual, "model_type", None))
    if model_type not in CONFIG_MAPPING:  # its get() looks past what it loads when asked
        return None
    return CONFIG_MAPPING[model_type]


def _as_taken(taken: Types, value: Any) -> Any:
    """taken: the types of which the value may be one."""
    if type(value) is int and float in taken and int not in taken:  # true is no number
        return float(value)
    if isinstance(value, list):
        items = [argument for kind in taken if get_origin(kind) in _LISTS for argument in get_args(kind)]
        of_items = tuple(each for item in items for each in _alternatives(item))
        return [_as_taken(of_items, item) for item in value]
    return value


def _alternatives(annotation: Any) -> Types:
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
