"""How a message names what somebody wrote: cleaned, short, and with the nearest known names."""

import unicodedata
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from probes.bounds import MAX_ECHO_CHARACTERS, MAX_SUGGESTIONS
from probes.workload.description import InvalidModel


def clean(value: object) -> str:
    """At most MAX_ECHO_CHARACTERS printable characters of a string; for anything else its kind in words.

    Control characters, surrogates and other unprintables go: they break terminals, logs and JSON encoders.
    """
    if not isinstance(value, str):
        return kind_of(value)
    head = value[: 4 * MAX_ECHO_CHARACTERS]
    kept = "".join(c for c in head if not _is_unseen(c)).strip()
    short = kept[:MAX_ECHO_CHARACTERS]
    return short if len(kept) <= MAX_ECHO_CHARACTERS else short[:-1] + "…"


def _is_unseen(character: str) -> bool:
    """It prints nothing, or a gap that looks like a blank."""
    return unicodedata.category(character)[0] in "CZ" and character != " "


def place(keys: Sequence[str]) -> str:
    """Where in a document something stands: its keys joined by dots, of a long way the first and the last.

    Each is whole or as `clean` shortens it: who may not repeat what was sent looks for that.
    """
    names = [clean(key) for key in keys]
    way = ".".join(names)
    return way if len(way) <= MAX_ECHO_CHARACTERS or len(names) < 3 else f"{names[0]}.….{names[-1]}"


def kind_of(value: object) -> str:
    """JSON's word for a value: `a list`, `true or false`, `a number`, …"""
    kinds = {bool: "true or false", str: "a string", list: "a list", dict: "an object", int: "a whole number"}
    if value is None:
        return "null"
    return kinds.get(type(value), "a number" if isinstance(value, float) else "something else")


def describe(value: object) -> str:
    """A value as a message may show it: numbers as they are when short, strings quoted, the rest by kind."""
    if isinstance(value, str):
        return f'"{clean(value)}"'
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, int):
        return describe_number(value)
    return f"{value:.6g}" if isinstance(value, float) else kind_of(value)


def describe_number(value: int) -> str:
    """A whole number, or its size in words: Python refuses to print very long ones."""
    return str(value) if abs(value) < 10**15 else f"a number of {value.bit_length()} bits"


def near_names(name: object, known: Iterable[str]) -> tuple[str, ...]:
    """Up to MAX_SUGGESTIONS known names that resemble what was written, best first."""
    if not isinstance(name, str):
        return ()
    written = clean(name).lower().replace("_", "-")
    spelled = {candidate.lower().replace("_", "-"): candidate for candidate in known}
    matches = get_close_matches(written, spelled, n=MAX_SUGGESTIONS, cutoff=0.6)
    return tuple(spelled[match] for match in matches)


def unknown(what: str, name: object, known: Iterable[str], otherwise: str) -> InvalidModel:
    """The error for a name nobody knows. otherwise: what to do when no known name resembles it."""
    suggestions = near_names(name, known)
    hint = f"Did you mean {join(suggestions, 'or')}?" if suggestions else otherwise
    shown = f'"{clean(name)}"' if isinstance(name, str) else kind_of(name)
    seen = clean(name).lower().replace("_", "-") if isinstance(name, str) else None
    unseen = suggestions and seen == suggestions[0].lower().replace("_", "-") and any(map(_is_unseen, str(name)))
    why = ", as it holds a character that cannot be seen" if unseen else ""
    return InvalidModel(f"{what} {shown} is not known{why}. {hint}", suggestions)


def join(names: Iterable[str], word: str = "and") -> str:
    """`a, b and c`."""
    items = list(names)
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {word} {items[-1]}" if items else "none"
