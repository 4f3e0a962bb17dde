"""The forms a model can be written in: layers, a Hugging Face config, a summary."""

from __future__ import annotations

from typing import Any

from probes.workload.architectures import transformers_version
from probes.workload.description import InvalidModel, ModelDescription
from probes.workload.huggingface import name_of, parse_huggingface
from probes.workload.layers import parse_layers
from probes.workload.summary import parse_summary
from probes.workload.wording import join, unknown

KINDS = ("layers", "huggingface", "summary")


def parse_document(document: dict[str, Any], *, trusted: bool = False) -> ModelDescription:
    """An object with one of KINDS. trusted: as of parse_layers. Raises InvalidModel."""
    found = [kind for kind in KINDS if kind in document]
    if len(found) > 1:
        raise InvalidModel(f"The model has {join(found)} at once. Keep the one that describes it.")
    if not found:
        key = next(iter(document), None)
        if key is None:
            raise InvalidModel(f"The model is an empty object; {kinds()} is expected in it.")
        raise unknown("The model's key", key, KINDS, f"One of {kinds()} is expected.")
    return _layers(document, trusted=trusted) if found == ["layers"] else _PARSERS[found[0]](document)


def kinds() -> str:
    """For messages: `"layers", "huggingface" or "summary"`."""
    return join([f'"{kind}"' for kind in KINDS], "or")


def _layers(document: dict[str, Any], *, trusted: bool = False) -> ModelDescription:
    content, _ = parse_layers(document, trusted=trusted)
    count = len(content["layers"])
    return ModelDescription("layers", f"{count} layer{'s' if count != 1 else ''}", content, written=document["layers"])


def _huggingface(document: dict[str, Any]) -> ModelDescription:
    content = parse_huggingface(document)
    return ModelDescription("huggingface", name_of(content), content, f"transformers {transformers_version()}")


def _summary(document: dict[str, Any]) -> ModelDescription:
    return ModelDescription("summary", "summary", dict(parse_summary(document)))


_PARSERS = {"layers": _layers, "huggingface": _huggingface, "summary": _summary}
