"""A model written as a summary: four figures in place of an architecture."""

from __future__ import annotations

from typing import Any

from probes.bounds import MAX_PARAMETERS, MAX_SUMMARY_BYTES, MAX_SUMMARY_FLOPS, MAX_SUMMARY_OPERATIONS
from probes.workload.description import InvalidModel
from probes.workload.options import whole
from probes.workload.wording import describe, join, unknown

# flops and activation bytes: of one sample's forward pass; operations: of one forward pass.
FIGURES = {
    "parameters": (1, MAX_PARAMETERS),
    "flops_per_sample": (0, MAX_SUMMARY_FLOPS),
    "activation_bytes_per_sample": (0, MAX_SUMMARY_BYTES),
    "operations": (1, MAX_SUMMARY_OPERATIONS),
}


def parse_summary(document: dict[str, Any]) -> dict[str, int]:
    """Canonical content of a `summary` model: the four figures. Raises InvalidModel."""
    written = document["summary"]
    if not isinstance(written, dict):
        raise InvalidModel(f'"summary" is {describe(written)}; an object with {join(FIGURES)} is expected.')
    for key in written:
        if key not in FIGURES:
            raise unknown("The figure", key, FIGURES, f"A summary has {join(FIGURES)}.")
    extra = [key for key in document if key != "summary"]
    if extra:
        raise unknown("The option", extra[0], (), "Beside summary a model takes nothing else.")
    missing = [name for name in FIGURES if written.get(name) is None]
    if missing:
        raise InvalidModel(f'The summary lacks "{missing[0]}". It has {join(FIGURES)}.')
    return {name: whole(f"summary.{name}", written[name], low, high) for name, (low, high) in FIGURES.items()}
