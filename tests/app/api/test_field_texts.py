"""Every member of every document says what it is, and says so once: beside its field."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from app.api import field_texts
from app.api.field_texts import in_words_of_json, read_texts
from app.api.openapi import REFERENCE, unit_of
from app.main import create_app
from app.settings import Settings


class Machine:
    name: str
    """As its owner
    calls it."""
    cores: int | None = None
    """Of it; None: nobody counted."""
    silent: bool = True


class Rig(Machine):
    cores: int
    """Of the rig."""


class RigDocument:
    name: str
    cores: int
    fast: bool
    """True: it is fast."""


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    return create_app(Settings()).openapi()


def test_every_member_of_every_document_says_what_it_is(described: dict[str, Any]) -> None:
    schemas = described["components"]["schemas"]
    assert len(list(members_of(described, ""))) > 500
    assert [place for place, name, member in members_of(described, "") if not says(name, member, schemas)] == []


def says(name: str, member: dict[str, Any], schemas: dict[str, Any]) -> bool:
    """In its own words, beyond its unit, or in those of the one schema that it refers to."""
    own = member.get("description", "").removesuffix(unit_of(name) or "").strip()
    to = member.get("$ref", "").removeprefix(REFERENCE.format(model=""))
    return bool(own or schemas.get(to, {}).get("description"))


def members_of(value: Any, place: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Where it stands, name and schema of each property, however deep."""
    if isinstance(value, dict):
        properties = value.get("properties")
        if isinstance(properties, dict) and "type" in value:
            yield from ((f"{place}.{name}", name, member) for name, member in properties.items())
        for name, inner in value.items():
            yield from members_of(inner, f"{place}.{name}" if place else name)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from members_of(inner, f"{place}[{number}]")


def test_what_a_field_is_stands_beneath_it() -> None:
    texts = read_texts([sys.modules[__name__]], {})
    assert texts["Machine"] == {"name": "As its owner calls it.", "cores": "Of it; null: nobody counted."}


def test_a_class_that_says_nothing_of_a_field_says_what_its_bases_do() -> None:
    texts = read_texts([sys.modules[__name__]], {"RigDocument": "Rig"})
    assert texts["Rig"] == {"name": "As its owner calls it.", "cores": "Of the rig."}
    assert texts["RigDocument"] == {**texts["Rig"], "fast": "true: it is fast."}


def test_a_module_without_its_source_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(_: object) -> str:
        raise OSError("could not get source code")

    monkeypatch.setattr(field_texts.inspect, "getsource", lost)
    assert read_texts([sys.modules[__name__]], {}) == {}


def test_documents_have_no_words_of_pythons() -> None:
    assert in_words_of_json("None: no.\n  Nonesuch, True and False") == "null: no. Nonesuch, true and false"
