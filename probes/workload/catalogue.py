"""The catalogue of models: rows of catalogue.toml, found by exact name."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from typing import Any

from probes.installed import Stamp, stamp_of
from probes.workload.description import InvalidModel, ModelDescription
from probes.workload.documents import parse_document
from probes.workload.wording import clean, unknown

LONGEST_NAME = 100


@dataclass(frozen=True, slots=True)
class CatalogueRow:
    """One model of the catalogue."""

    name: str
    """That it is asked for by."""
    family: str
    """What it works on: tabular, vision, text, audio or recurrent."""
    summary: str
    """What it is, in a line."""
    parameters: int
    """Trainable scalars."""
    source: str
    """Where its sizes are published."""
    description: ModelDescription
    aliases: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """What a list of models tells of it: all but its description."""
        return {
            "name": self.name,
            "family": self.family,
            "summary": self.summary,
            "parameters": self.parameters,
            "source": self.source,
        }


def list_models() -> tuple[CatalogueRow, ...]:
    """Every row, in the order of the file."""
    stamp = stamp_of("transformers")
    return tuple(_row(name, stamp) for name in _documents())


def find_model(name: str) -> ModelDescription:
    """What find_row's model is."""
    return find_row(name).description


def is_model_name(name: str) -> bool:
    """Whether find_row knows a model by it."""
    return _found(name) is not None


def find_row(name: str) -> CatalogueRow:
    """The model of a name or alias; case does not count, nor whether `-`, `_` or a space was typed.

    Raises InvalidModel, with near names, for any other: exact or unknown, never fuzzy.
    """
    found = _found(name)
    if found is not None:
        return _row(found, stamp_of("transformers"))
    if "/" in name or "\\" in name:
        raise InvalidModel(
            f'"{clean(name)}" looks like a path or a name on a hub. Nothing is downloaded: write the content of the '
            'model\'s config.json as {"huggingface": {…}}, or take a name that "crosspoint models" lists.',
        )
    raise unknown("The model", name, _documents(), '"crosspoint models" and GET /models list the names.')


@lru_cache(maxsize=128)  # more than there are rows
def _row(name: str, _: Stamp | None) -> CatalogueRow:
    """A config is another model under another transformers, whose stamp is given."""
    row = dict(_documents()[name])
    family, summary, parameters, source = (row.pop(field) for field in ("family", "summary", "parameters", "source"))
    aliases = tuple(row.pop("aliases", ()))
    description = replace(parse_document(row), name=name)
    return CatalogueRow(name, family, summary, parameters, source, description, aliases)


@lru_cache(maxsize=1)
def _documents() -> dict[str, dict[str, Any]]:
    """Name -> what the file says."""
    text = files("probes.workload").joinpath("catalogue.toml").read_text("utf-8")
    rows: dict[str, dict[str, Any]] = tomllib.loads(text)
    return rows


@lru_cache(maxsize=1)
def _names() -> dict[str, str]:
    """Every normalised name and alias -> the row's name."""
    return {
        _normalised(spelled): name for name, row in _documents().items() for spelled in (name, *row.get("aliases", ()))
    }


def _found(name: str) -> str | None:
    """The row's name."""
    return _names().get(_normalised(name)) if len(name) <= LONGEST_NAME else None


def _normalised(name: str) -> str:
    return name.strip().lower().replace("_", "-").replace(" ", "-")
