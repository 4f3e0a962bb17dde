"""What is no JSON is told what is wrong, and where."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.checked import Refused
from probes.strict_json import NotFinite, parse_strict_json


def refusal(content: bytes) -> str:
    with pytest.raises(Refused) as caught:
        parse_strict_json(content)
    return str(caught.value)


@pytest.mark.parametrize(
    ("content", "what", "place"),
    [
        (b"{'a': 1}", "property name enclosed in double quotes", (1, 2)),
        (b'{"a": 1,\n "b": 08}', "delimiter", (2, 8)),
        (b'{"a": True}', "Expecting value", (1, 7)),
        (b'{"a": 1 "b": 2}', "delimiter", (1, 9)),
        (b'{"a": "tab\there"}', "Invalid control character", (1, 11)),
        (b'{"a": 1}\n\nmore', "Extra data", (3, 1)),
        (b'{"a": ",", "b": [1,\n  NaN, 1e999]}', "not finite", (2, 3)),
        (b'{"a": "NaN", "b": -Infinity}', "not finite", (1, 19)),
        (b'{"a": 1.0, "b": [2, -1e999]}', "not finite", (1, 21)),
        (b'[1, ' + b"9" * 400 + b', {"a": ' + b"9" * 5000 + b"}]", "thousands of digits", (1, 413)),
        (b'{"a": {"b": 1}, "b": ["a"],\n"\\u0061": 3}', "one key twice", (2, 1)),
        (b'[{"a": "a"}, {"a": {}, "b": ["a", "a"], "a": 1}]', "one key twice", (1, 41)),
        (b'["\\ud83d\\ude00", "\\ud83d"]', "half a character", (1, 18)),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_place(content: bytes, what: str, place: tuple[int, int]) -> None:
    said = refusal(content)
    assert what in said
    assert said.endswith(f"in line {place[0]}, column {place[1]}")
    assert " at in " not in said


def test_the_first_byte_that_is_no_text_is_told() -> None:
    assert "byte 3" in refusal(b'["\xff"]')
    assert "UTF-8" in refusal('{"a": 1}'.encode("utf-16"))


def test_a_byte_order_mark_is_passed_over_and_whole_numbers_are_as_long_as_they_are() -> None:
    assert parse_strict_json(b'\xef\xbb\xbf{"a": "\\ud83d\\ude00"}') == {"a": "\U0001f600"}
    assert parse_strict_json(b"[" + b"9" * 400 + b"]") == [10**400 - 1]


def test_a_number_that_is_not_finite_is_one_of_its_own() -> None:
    with pytest.raises(NotFinite):
        parse_strict_json(b"[NaN]")


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text() | st.integers(), lambda inner: (
    st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4)
)), st.booleans())  # fmt: skip
def test_whatever_python_writes_is_read_or_its_number_is_found(value: Any, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    try:
        found = parse_strict_json(text.encode())
    except NotFinite as error:
        column = int(re.findall(r"column (\d+)$", str(error))[0])
        assert re.match("NaN|-?Infinity", text[column - 1 :])
    else:
        assert found == value
