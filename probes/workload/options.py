"""A layer's options: their names, the other ways people spell them, and the values each one takes."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Any

from probes.bounds import MAX_DIMENSION
from probes.workload.description import InvalidModel
from probes.workload.wording import clean, describe, join, near_names


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a layer type; `read` turns what was written into the canonical value or raises InvalidModel.

    aliases: torch's spelling and other usual ones. default: when nothing was written; None: inferred or absent.
    """

    name: str
    aliases: tuple[str, ...] = ()
    default: Any = None

    def read(self, where: str, value: Any) -> Any:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Whole(Option):
    """A whole number between low and high.

    words: strings that are taken as well (`channels`).
    """

    low: int = 1
    high: int = MAX_DIMENSION
    words: tuple[str, ...] = ()

    def read(self, where: str, value: Any) -> int | str:
        if isinstance(value, str) and value in self.words:
            return value
        return whole(f'{where}: "{self.name}"', value, self.low, self.high)


@dataclass(frozen=True, slots=True)
class Wholes(Option):
    """A whole number, or a list of at most `length` of them (one per spatial axis).

    words: strings that are taken as well (`same`).
    """

    low: int = 1
    high: int = MAX_DIMENSION
    words: tuple[str, ...] = ()
    length: int = 3

    def read(self, where: str, value: Any) -> Any:
        if isinstance(value, str) and value in self.words:
            return value
        label = f'{where}: "{self.name}"'
        if not isinstance(value, list | tuple):
            return whole(label, value, self.low, self.high)
        if not 1 <= len(value) <= self.length:
            raise InvalidModel(f"{label} is a list of {len(value)}; one to {self.length} whole numbers are expected.")
        return [whole(label, item, self.low, self.high) for item in value]


@dataclass(frozen=True, slots=True)
class Flag(Option):
    """true or false."""

    def read(self, where: str, value: Any) -> bool:
        if isinstance(value, bool):
            return value
        raise InvalidModel(f'{where}: "{self.name}" is {describe(value)}; write true or false.')


@dataclass(frozen=True, slots=True)
class Real(Option):
    """A finite number between low and high."""

    low: float = 0.0
    high: float = 1.0

    def read(self, where: str, value: Any) -> float:
        fine = isinstance(value, int | float) and not isinstance(value, bool)
        # The comparison comes first: a huge int has no float.
        if fine and self.low <= value <= self.high and isfinite(value):
            return float(value)
        raise InvalidModel(
            f'{where}: "{self.name}" is {describe(value)}; a number from {self.low:g} to {self.high:g} is expected.'
        )


@dataclass(frozen=True, slots=True)
class Choice(Option):
    """One of a few words."""

    among: tuple[str, ...] = ()

    def read(self, where: str, value: Any) -> str:
        if isinstance(value, str) and value.lower() in self.among:
            return value.lower()
        suggestions = near_names(value, self.among)
        message = f'{where}: "{self.name}" is {describe(value)}; one of {join(self.among, "or")} is expected.'
        raise InvalidModel(message, suggestions)


def whole(label: str, value: Any, low: int, high: int) -> int:
    """A checked whole number; 3.0 counts as 3, true does not count as 1. Raises InvalidModel."""
    if isinstance(value, float) and isfinite(value) and value == int(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidModel(f"{label} is {describe(value)}; a whole number is expected.")
    if not low <= value <= high:
        raise InvalidModel(f"{label} is {describe(value)}; it must lie between {low} and {high}.")
    return value


def read_options(where: str, options: tuple[Option, ...], written: dict[str, Any]) -> dict[str, Any]:
    """Canonical name -> checked value, defaults filled in (absent where there is none).

    written: the layer as it stands, without `type`. Raises InvalidModel for an unknown, doubled or wrong option.
    """
    by_name = {spelling: option for option in options for spelling in (option.name, *option.aliases)}
    values: dict[str, Any] = {}
    for key, value in written.items():
        option = by_name.get(key)
        if option is None:
            raise _unknown_option(where, key, by_name, options)
        if option.name in values:
            raise InvalidModel(f'{where} says "{option.name}" twice, the second time as "{clean(key)}". Keep one.')
        if value is not None:
            values[option.name] = option.read(where, value)
    defaults = {option.name: option.default for option in options if option.default is not None}
    return defaults | values


def _unknown_option(where: str, key: object, by_name: dict[str, Option], options: tuple[Option, ...]) -> InvalidModel:
    suggestions = near_names(key, by_name)
    takes = f"It takes {join(option.name for option in options)}." if options else "It takes no options."
    hint = f"Did you mean {join(suggestions, 'or')}?" if suggestions else takes
    return InvalidModel(f'{where} has no option "{clean(key)}". {hint}', suggestions)
