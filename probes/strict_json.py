"""JSON that somebody else wrote, as RFC 8259 has it; where it is none, a sentence that says what is wrong and where."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable
from typing import Any

from probes.checked import Refused

# What is left behind by Python's parser of a number, a literal or a character's code that is cut off; or nothing.
_BEGUN = r"-|\.|[eE][+-]?|t(ru?)?|f(a(ls?)?)?|n(ul?)?|u[0-9a-fA-F]{0,4}|"
# A text, a sign, or what stands between signs: a number or a literal.
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[][{}:,]|[^][{}:,"\s]+')
# Half of a character beyond the first 65,536, which is written in two.
_HALF = re.compile(r"\\u[dD][89a-fA-F]")


class NotFinite(Refused):
    """A number that JSON has none for, or one too large to be one."""


class _Twice(Exception):
    """An object has one key twice."""


# What to write for it in a model's config, of which published ones have it.
SPECIAL_FLOAT_ADVICE = (
    'In a config.json leave its key out, or write {"__float__": "Infinity"} as transformers does now.'
)


def parse_strict_json(content: bytes) -> Any:
    """JSON as RFC 8259 has it: UTF-8, a byte order mark passed over; finite numbers; no key twice; whole characters.
    Raises Refused with a sentence that begins with `it` or is about what is in it, and repeats nothing of it."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Refused(f"it is not UTF-8 text: byte {error.start + 1} begins no character") from None
    try:
        value = json.loads(text, object_pairs_hook=_once, parse_float=_finite, parse_constant=_finite)
        if _HALF.search(text) is not None:
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise Refused(f"it is not JSON: {_what_is_wrong(error)}") from None
    except RecursionError:
        raise Refused("it is nested without end") from None
    except _Twice:
        raise Refused(f"an object in it has one key twice, {_place(text, _find_second_key(text))}") from None
    except NotFinite:
        at = _place(text, _find(text, _is_endless))
        raise NotFinite(f"it holds a number that is not finite, or too large to be one, {at}") from None
    except UnicodeEncodeError:
        raise Refused(f"it holds half a character (a lone surrogate), {_place(text, _find(text, _is_half))}") from None
    except ValueError:
        at = _place(text, _find(text, _is_long))
        raise Refused(f"it holds a number with thousands of digits, {at}") from None
    return value


def _what_is_wrong(error: json.JSONDecodeError) -> str:
    if _is_cut_off(error):
        return "it ends in the middle"
    return f"{error.msg.removesuffix(' at')} {_place(error.doc, error.pos)}"


def _is_cut_off(error: json.JSONDecodeError) -> bool:
    """Whether the document might have gone on: also with the rest of a number, a literal or a character's code."""
    rest = error.doc[error.pos :].rstrip()
    if error.msg == "Extra data":  # behind a document that is whole
        return False
    return error.msg.startswith("Unterminated string") or re.fullmatch(_BEGUN, rest) is not None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _Twice
    return found


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise NotFinite("a number is not finite")
    return value


def _place(text: str, position: int) -> str:
    line_begins = text.rfind("\n", 0, position) + 1
    return f"in line {text.count(chr(10), 0, position) + 1}, column {position - line_begins + 1}"


def _find(text: str, is_it: Callable[[str], bool]) -> int:
    """Where the first such token is; the parser does not say of what it takes for well-formed."""
    return next((token.start() for token in _TOKEN.finditer(text) if is_it(token[0])), 0)


def _is_endless(token: str) -> bool:
    """A whole number never is, however long."""
    return token[0] in "-0123456789IN" and not token.lstrip("-").isdigit() and not math.isfinite(float(token))


def _is_long(token: str) -> bool:
    return len(token) > sys.get_int_max_str_digits() and token.lstrip("-").isdigit()


def _is_half(token: str) -> bool:
    if token[0] != '"':
        return False
    try:
        json.loads(token).encode()
    except UnicodeEncodeError:
        return True
    return False


def _find_second_key(text: str) -> int:
    """Where the first key is that its object has already."""
    open_ones: list[set[str] | None] = []  # of each object its keys; None: a list
    before = ""
    for token in _TOKEN.finditer(text):
        word = token[0]
        if word in ("{", "["):
            open_ones.append(set() if word == "{" else None)
        elif word in ("}", "]"):
            open_ones.pop()
        elif before in ("{", ",") and (keys := open_ones[-1]) is not None:
            key = json.loads(word)
            if key in keys:
                return token.start()
            keys.add(key)
        before = word
    return 0
