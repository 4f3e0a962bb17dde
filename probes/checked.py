"""Values of a document that somebody else wrote, each checked on the way in: its kind, its range, its length.

Every function takes the value and its place in the document (`points[3].seconds`), and raises Refused with a
sentence that names the place and never repeats the value.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection
from typing import Any, TypeGuard, TypeVar

Choice = TypeVar("Choice")


# What is left behind by Python's parser of a number, a literal or a character's code that is cut off; or nothing.
_BEGUN = r"-|\.|[eE][+-]?|t(ru?)?|f(a(ls?)?)?|n(ul?)?|u[0-9a-fA-F]{0,4}|"


class Refused(ValueError):
    """A value that cannot be used; the message says which one and what it has to be."""


class NotFinite(Refused):
    """A number that JSON has none for, or one too large to be one."""


# What to write for it in a model's config, of which published ones have it.
SPECIAL_FLOAT_ADVICE = (
    'In a config.json leave its key out, or write {"__float__": "Infinity"} as transformers does now.'
)


def parse_strict_json(content: bytes) -> Any:
    """JSON as RFC 8259 has it: UTF-8, a byte order mark passed over; finite numbers; no key twice. Raises Refused."""
    try:
        return json.loads(
            content.decode("utf-8-sig"), object_pairs_hook=_once, parse_float=_finite, parse_constant=_finite
        )
    except UnicodeDecodeError:
        raise Refused("it is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        what = (
            "it ends in the middle"
            if _is_cut_off(error)
            else f"{error.msg} in line {error.lineno}, column {error.colno}"
        )
        raise Refused(f"it is not JSON: {what}") from None
    except RecursionError:
        raise Refused("it is nested without end") from None
    except Refused:
        raise
    except ValueError:
        raise Refused("it holds a number with thousands of digits") from None


def _is_cut_off(error: json.JSONDecodeError) -> bool:
    """Whether the document might have gone on: also with the rest of a number, a literal or a character's code."""
    rest = error.doc[error.pos :].rstrip()
    if error.msg == "Extra data":  # behind a document that is whole
        return False
    return error.msg.startswith("Unterminated string") or re.fullmatch(_BEGUN, rest) is not None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise Refused("an object in it has one key twice")
    return found


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise NotFinite("it holds a number that is not finite")
    return value


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
