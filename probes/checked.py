"""Values of a document that somebody else wrote, each checked on the way in: its kind, its range, its length.

Every function takes the value and its place in the document (`points[3].seconds`), and raises Refused with a
sentence that names the place and never repeats the value.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, TypeGuard, TypeVar

Choice = TypeVar("Choice")


class Refused(ValueError):
    """A value that cannot be used; the message says which one and what it has to be. theirs: the words in it of who
    wrote the document, which are told to nobody else."""

    def __init__(self, message: str, theirs: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.theirs = theirs


def check_object(value: Any, place: str, most: int | None = None) -> dict[str, Any]:
    """most: how many members it may have."""
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise Refused(f"{place} has to be an object")
    if most is not None and len(value) > most:
        raise Refused(f"{place} has more than {most} members")
    return value


def check_list(value: Any, place: str, most: int) -> list[Any] | tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise Refused(f"{place} has to be a list")
    if len(value) > most:
        raise Refused(f"{place} has more than {most:,} entries")
    return value


def check_number(value: Any, place: str, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:  # NaN is neither
        raise Refused(f"{place} has to be a number from {low:g} to {high:g}")
    return float(value)


def is_whole(value: Any) -> TypeGuard[int]:
    """True is none, though Python counts it as 1."""
    return isinstance(value, int) and not isinstance(value, bool)


def check_count(value: Any, place: str, low: int, high: int) -> int:
    if not is_whole(value) or not low <= value <= high:
        raise Refused(f"{place} has to be a whole number from {low:,} to {high:,}")
    return value


def check_place(value: Any, place: str, count: int, what: str) -> int:
    """The place of one of so many that stand elsewhere in the document. what: such a one is."""
    if count == 0:
        raise Refused(f"{place} points at a {what} that is not there")
    return check_count(value, place, 0, count - 1)


def check_text(value: Any, place: str, most: int, pattern: str | None = None) -> str:
    """Printable: no control characters, line breaks, lone surrogates or marks that turn the writing round."""
    if not isinstance(value, str) or len(value) > most:
        raise Refused(f"{place} has to be text of at most {most} characters")
    if not value.isprintable() or (pattern is not None and re.fullmatch(pattern, value) is None):
        raise Refused(f"{place} holds characters that do not belong there")
    return value


def check_choice(value: Any, place: str, choices: Collection[Choice]) -> Choice:
    for choice in choices:
        if type(value) is type(choice) and value == choice:
            return choice
    raise Refused(f"{place} has to be one of {', '.join(map(str, choices))}")


def check_flag(value: Any, place: str) -> bool:
    if not isinstance(value, bool):
        raise Refused(f"{place} has to be true or false")
    return value


def told_as_newer(version: Any, known: str, what: str) -> str | None:
    """Where this schema version is one after `known`, what to say of it and to do; else None. what: such documents."""
    if not (isinstance(version, str) and version.isdecimal() and len(version) < 5 and int(version) > int(known)):
        return None
    return (
        f"a newer crosspoint made it, and this one reads {what} up to schema version {known}: update this one, or "
        "calibrate there with one like it"
    )


def member(document: dict[str, Any], name: str, place: str) -> Any:
    """A member that has to be there."""
    if name not in document:
        raise Refused(f"{place}.{name} is missing" if place else f"{name} is missing")
    return document[name]


def make_printable(text: str) -> str:
    """Text of a machine's own making as check_text takes it: blanks for whatever is no printable character."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
