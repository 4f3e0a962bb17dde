"""What a layer type is: its names, its options, and how it changes what flows through it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from probes.workload.description import InvalidModel
from probes.workload.flow import Flow
from probes.workload.options import Option


@dataclass(frozen=True, slots=True)
class Layer:
    """A checked layer. content: canonical options with every size spelled out, so that building is a plain mapping;
    flow: what leaves it; parameters: trainable scalars; count: layers inside, itself included."""

    content: dict[str, Any]
    flow: Flow
    parameters: int = 0
    count: int = 1


Infer = Callable[[str, dict[str, Any], Flow], Layer]


@dataclass(frozen=True, slots=True)
class LayerType:
    """name: canonical. aliases: torch's class name and other usual spellings, compared without case and `_`.

    infer(where, options, flow): the checked layer; raises InvalidModel when the options do not fit the flow.
    """

    name: str
    options: tuple[Option, ...]
    infer: Infer
    aliases: tuple[str, ...] = ()


def spelling(name: str) -> str:
    """Conv2d, conv_2d and conv-2d are one name."""
    return name.lower().replace("_", "").replace("-", "").replace(" ", "")


def index_by_spelling(types: Iterable[LayerType]) -> dict[str, LayerType]:
    """Every spelling of every type; two types may not share one."""
    index: dict[str, LayerType] = {}
    for kind in types:
        for name in (kind.name, *kind.aliases):
            if index.setdefault(spelling(name), kind) is not kind:
                raise ValueError(f"two layer types are spelled {name}")
    return index


def require(where: str, options: dict[str, Any], name: str, example: str) -> Any:
    """An option that has no default. example: the option as one would write it."""
    if name not in options:
        raise InvalidModel(f'{where} needs "{name}": write for example {example}.')
    return options[name]


def agree(where: str, options: dict[str, Any], name: str, found: int, flow: Flow, hint: str = "") -> int:
    """A size that can be inferred: what was written must be what arrives. Returns it."""
    written = options.get(name, found)
    if written != found:
        advice = hint or f'Write "{name}": {found}, or leave "{name}" out.'
        raise InvalidModel(
            f'{where} expects "{name}": {written}, but {found} arrive: one sample is {flow.text}. {advice}'
        )
    return found
