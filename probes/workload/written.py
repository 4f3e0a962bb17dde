"""A checked description -> what a user would have written."""

from __future__ import annotations

from typing import Any

from probes.workload.catalogue import CatalogueRow
from probes.workload.description import ModelDescription

# What checking layers adds to them, and to one of them.
INFERRED = frozenset({"output_shape", "class_axis", "tokens"})
INFERRED_OPTIONS = frozenset({"steps", "features"})


def write_row(row: CatalogueRow) -> dict[str, Any]:
    """A row of the catalogue with its `model`, which can be changed and asked about."""
    return {**row.to_json(), "model": write_model(row.description)}


def write_model(description: ModelDescription) -> dict[str, Any]:
    """As parse_model takes it: what was inferred goes, and checking it gives the same again."""
    content = {name: value for name, value in description.content.items() if value is not None}
    if description.kind == "huggingface":
        return {"huggingface": content.pop("config"), **content}
    if description.kind == "layers":
        written = {name: value for name, value in content.items() if name not in INFERRED}
        return {**written, "layers": [_written_layer(layer) for layer in content["layers"]]}
    return {description.kind: content}


def _written_layer(layer: dict[str, Any]) -> dict[str, Any]:
    written = {name: value for name, value in layer.items() if name not in INFERRED_OPTIONS}
    if isinstance(inner := layer.get("layers"), list):
        written["layers"] = [_written_layer(each) for each in inner]
    return written
