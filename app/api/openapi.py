"""The API's description, made when somebody asks for it: schemas from the dataclasses, with what their fields say of
themselves, and units from the fields' names."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

REFERENCE = "#/components/schemas/{model}"

# What their names' ends would tell wrongly.
NAMED = {
    "steps": None,  # a number of them, or rows
    "looked_at": "Samples a step.",
    "medians_cross_at": "Samples a step.",
    "measured_at": "Seconds since 1970, UTC.",
}
# Name's end -> what its number is. The longest end that matches counts.
UNITS = {
    "_bytes_per_second": "Bytes per second.",
    "_per_second": "Per second.",
    "_bytes": "Bytes.",
    "_seconds": "Seconds.",
    "_hz": "Hertz.",
    "_percent": "Percent, 0 to 100.",
    "_celsius": "Degrees Celsius.",
    "_watts": "Watts.",
    "_at": "RFC 3339, UTC.",
    "_cores": "Cores.",
    "_steps": "Steps.",
    "_size": "Samples a step.",
    "_sizes": "Samples a step.",
}

# Of a server-sent event (WHATWG HTML, "Server-sent events").
EVENT = {
    "data": "A document as JSON: what changes on the machine, or the job without its result.",
    "event": "What it is: hardware; of a job progress, and finished as the last.",
    "id": "Counts up; a job's events have none.",
    "retry": "Milliseconds until a browser asks again when the connection is lost; in the machine's first.",
}
# First part of an address -> what the name behind it is.
NAMES = {
    "gpus": "What a card is called, as RTX 3080 Ti; case, hyphens, trademark signs and the vendor do not matter.",
    "models": "A model's name or alias in the catalogue.",
    "profiles": "A profile's name.",
    "measurements": "A job's id.",
    "calibrations": "A job's id.",
}

WORKLOAD_EXAMPLES = {
    "name": {"summary": "A model of the catalogue", "value": {"model": "resnet-50", "batch_size": 64}},
    "layers": {
        "summary": "Layers",
        "value": {
            "model": {
                "layers": [
                    {"type": "linear", "in": 4, "out": 10},
                    {"type": "relu"},
                    {"type": "linear", "in": 10, "out": 3},
                ],
                "input_shape": [4],
            },
            "batch_size": 120,
            "optimizer": "sgd",
        },
    },
    "huggingface": {
        "summary": "A Hugging Face config.json",
        "value": {
            "model": {
                "huggingface": {"model_type": "bert", "num_hidden_layers": 4},
                "task": "text-classification",
                "sequence_length": 128,
            },
            "batch_size": 16,
        },
    },
}
EXAMPLES = {
    "RecommendBody": WORKLOAD_EXAMPLES,
    "MeasurementBody": WORKLOAD_EXAMPLES,
    "CalibrationBody": {"quick": {"summary": "Half a minute", "value": {"effort": "quick"}}},
}


def describe_body(name: str) -> dict[str, Any]:
    """openapi_extra of an endpoint that reads its body by `read_body`."""
    content = {"schema": {"$ref": REFERENCE.format(model=name)}, "examples": EXAMPLES[name]}
    return {"requestBody": {"required": True, "content": {"application/json": content}}}


def describe_document(name: str) -> dict[str, Any]:
    """openapi_extra of an endpoint that takes one of our own documents."""
    return {"requestBody": {"required": True, "content": _content("application/json", name)}}


def describe_answer(name: str, text: str, status: int = 200) -> dict[int | str, dict[str, Any]]:
    """responses of an endpoint: its document. What refusals look like is described for all at once."""
    return {status: {"description": text, "content": _content("application/json", name)}}


def install_openapi(app: FastAPI) -> None:
    """Describe the API when asked, once: making the schemas takes longer than starting the service."""

    def describe() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = make_description(app)
        return app.openapi_schema

    app.openapi = describe  # type: ignore[method-assign]


def make_description(app: FastAPI) -> dict[str, Any]:
    from app.api.schemas import collect_schemas

    document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas.update(collect_schemas(REFERENCE))
    for schema in schemas.values():
        add_units(schema)
    for address, path in document["paths"].items():
        for operation in path.values():
            for parameter in operation.get("parameters", ()):
                parameter.setdefault("description", NAMES[address.split("/")[1]])
            describe_events(operation["responses"])
            describe_refusals(operation["responses"])
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    return document


def describe_events(responses: dict[str, Any]) -> None:
    """Say what the members of server-sent events are, which fastapi's own schema of them does not."""
    streamed = responses.get("200", {}).get("content", {}).get("text/event-stream", {})
    for name, member in streamed.get("itemSchema", {}).get("properties", {}).items():
        member.update({"description": EVENT[name]} if name in EVENT else {})


def describe_refusals(responses: dict[str, Any]) -> None:
    """Every endpoint refuses by a problem, event streams too; a fault or a busy machine is one as well."""
    responses.pop("422", None)  # fastapi's own; ours is among 4XX
    problem = {"description": "A problem (RFC 9457).", "content": _content("application/problem+json", "Problem")}
    for statuses in ("4XX", "5XX"):
        responses.setdefault(statuses, problem)


def add_units(schema: Any) -> None:
    """Put the unit that a property's name carries behind what the property says it is."""
    if isinstance(schema, dict):
        for name, described in (schema.get("properties") or {}).items():
            unit = unit_of(name)
            if unit and isinstance(described, dict):
                described["description"] = f"{described.get('description', '')} {unit}".strip()
        for value in schema.values():
            add_units(value)
    elif isinstance(schema, list):
        for value in schema:
            add_units(value)


def unit_of(name: str) -> str | None:
    """`peak_bytes` -> `Bytes.`"""
    if name in NAMED:
        return NAMED[name]
    ends = [end for end in UNITS if f"_{name}".endswith(end)]
    return UNITS[max(ends, key=len)] if ends else None


def _content(media_type: str, name: str) -> dict[str, Any]:
    return {media_type: {"schema": {"$ref": REFERENCE.format(model=name)}}}
