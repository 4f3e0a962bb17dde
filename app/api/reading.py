"""Reads a request's body: JSON, checked against a model of what may be in it. Never repeats what it read."""

from __future__ import annotations

import asyncio
import difflib
import re
from collections.abc import Collection, Sequence
from typing import Any, NoReturn, TypeVar, get_args

from fastapi import Request
from pydantic import BaseModel, ValidationError

from app.api.problems import Problem
from probes import bounds
from probes.checked import Refused
from probes.strict_json import SPECIAL_FLOAT_ADVICE, NotFinite, parse_strict_json

Model = TypeVar("Model", bound=BaseModel)

# Larger bodies are parsed in a thread, so that others are answered meanwhile.
SMALL_BODY_BYTES = 16 * 1024
MAX_PROBLEMS_TOLD = 8
# Beyond these complaints about one body none is described: 4 MB hold 380,000 fields that nobody knows.
MAX_COMPLAINTS = 64
# pydantic's kinds of complaint whose words are of Python and not of JSON.
_SENTENCES = {
    "string_too_short": "is empty; it needs at least one character",
    "string_type": "should be a string",
    "model_type": "should be an object",
    "dict_type": "should be an object",
    "list_type": "should be a list",
    "int_type": "should be a whole number",
    "int_from_float": "should be a whole number",
    "float_type": "should be a number",
}
_CLUMSY = re.compile(r"^(Value error, |Input |String |List )| after validation, not .*$")


async def read_body(request: Request, model: type[Model]) -> Model:
    """The request's body as `model`. Raises Problem.

    What was sent is noted on the request, so that no problem repeats it.
    """
    body = await read_content(request)
    in_thread = len(body) > SMALL_BODY_BYTES
    value = await asyncio.to_thread(parse_json, body) if in_thread else parse_json(body)
    request.state.sent = value
    return await asyncio.to_thread(parse_body, value, model) if in_thread else parse_body(value, model)


async def read_content(request: Request) -> bytes:
    """The request's body as it came, for who checks it themselves; its type is JSON. Raises Problem."""
    _check_content_type(request.headers.get("content-type", ""))
    _check_encoding(request.headers.get("content-encoding", ""))
    return await request.body()


def parse_body(value: Any, model: type[Model]) -> Model:
    """Raises Problem."""
    if not isinstance(value, dict):
        _refuse_json("The body has to be a JSON object.")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise _invalid(error, model) from None


def parse_json(body: bytes) -> Any:
    """Strict JSON (probes.strict_json), no deeper than bounds allow. Raises Problem."""
    if not body.strip():
        _refuse_json("The body is empty. It has to be a JSON object.")
    try:
        value = parse_strict_json(body)
    except NotFinite as error:
        _refuse_json(f"The body cannot be used: {error}. {SPECIAL_FLOAT_ADVICE}")
    except Refused as error:
        _refuse_json(f"The body cannot be used: {error}.")
    if _is_deeper(value, bounds.MAX_JSON_DEPTH):
        _refuse_json(f"The body is nested deeper than {bounds.MAX_JSON_DEPTH} levels.")
    return value


def _check_content_type(value: str) -> None:
    kind = value.partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise Problem(
            415, "not-json", "Not JSON", "Send the body as JSON, with the header Content-Type: application/json."
        )


def _check_encoding(value: str) -> None:
    if value.strip().lower() not in ("", "identity"):
        detail = "The body is compressed, and nothing is unpacked here. Send it as it is, without Content-Encoding."
        raise Problem(415, "compressed", "Compressed", detail, {}, {"Accept-Encoding": "identity"})


def _refuse_json(detail: str) -> NoReturn:
    raise Problem(400, "invalid-json", "The body cannot be read", detail)


def _is_deeper(value: Any, limit: int) -> bool:
    """Level by level, without recursion."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(limit):
        level = [
            child
            for container in level
            for child in (container.values() if isinstance(container, dict) else container)
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True


def _invalid(error: ValidationError, model: type[BaseModel]) -> Problem:
    if error.error_count() > MAX_COMPLAINTS:
        known = f"It may have these fields: {', '.join(model.model_fields)}."
        message = f"More than {MAX_COMPLAINTS} things in the body are not as they have to be. {known}"
        return _refusal([{"pointer": "", "message": message}])
    found = error.errors(include_url=False, include_input=False, include_context=False)
    missing = {row["loc"] for row in found if row["type"] == "missing"}
    rows = [_describe(row, model, missing) for row in found]
    return _refusal(list({row["message"]: row for row in _joined(rows)}.values())[:MAX_PROBLEMS_TOLD])


def _refusal(rows: list[dict[str, str]]) -> Problem:
    detail = " ".join(row["message"] for row in rows)
    return Problem(422, "invalid-request", "The request cannot be answered", detail, {"errors": rows})


def _joined(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """A field that may be of several kinds has a complaint from each: one sentence names them all."""
    found: dict[str, dict[str, str]] = {}
    for row in rows:
        before = found.get(row["pointer"])
        subject, should, kind = row["message"].partition(" should be a")
        if before is not None and should and before["message"].startswith(subject + should):
            found[row["pointer"]] = {**row, "message": f"{before['message'].rstrip('.')} or a{kind}"}
        else:
            found[row["pointer"] if before is None else row["message"]] = row
    return list(found.values())


def _describe(row: Any, model: type[BaseModel], missing: Collection[tuple[Any, ...]]) -> dict[str, str]:
    """One complaint: where, as a JSON pointer, and a sentence. The name of an unknown field is input, and stays out.
    missing: the places of what the request needs and lacks."""
    place, model = _follow(row["loc"], model)
    where = "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in place).removeprefix(".")
    if row["type"] == "extra_forbidden":
        *around, written = row["loc"]
        lacking = {name for name in model.model_fields if (*around, name) in missing}
        near = _nearest(str(written)[: bounds.MAX_ECHO_CHARACTERS], model.model_fields, lacking)
        hint = f"Did you mean {near}?" if near else f"Known are: {', '.join(model.model_fields)}."
        message = f"There is a field that {where or 'this request'} does not have. {hint}"
    elif row["type"] == "missing":
        message = f"{where} is missing: this request needs it."
    elif row["type"] in _SENTENCES:
        message = f"{where} {_SENTENCES[row['type']]}."
    else:
        message = f"{where} {_CLUMSY.sub('', str(row['msg']))}."
    return {"pointer": _pointer(place), "message": message}


def _nearest(written: str, fields: Collection[str], lacking: Collection[str]) -> str | None:
    """The field that takes the fewest edits; of several the one that is lacking. None where none resembles it."""
    near = difflib.get_close_matches(written, fields, len(fields))
    return min(near, key=lambda name: (_count_edits(written, name), name not in lacking), default=None)


def _count_edits(one: str, other: str) -> int:
    """Letters put in, left out, changed, or swapped with the next (optimal string alignment)."""
    earlier, before = list[int](), list(range(len(other) + 1))
    for row, letter in enumerate(one, 1):
        here = [row]
        for column, wanted in enumerate(other, 1):
            edits = min(before[column] + 1, here[-1] + 1, before[column - 1] + (letter != wanted))
            if row > 1 and column > 1 and (letter, one[row - 2]) == (other[column - 2], wanted):
                edits = min(edits, earlier[column - 2] + 1)
            here.append(edits)
        earlier, before = before, here
    return before[-1]


def _pointer(place: list[str]) -> str:
    return "".join(f"/{part}" for part in place)


def _follow(location: Sequence[Any], model: type[BaseModel]) -> tuple[list[str], type[BaseModel]]:
    """The known part of a complaint's place, and the innermost model on the way to it."""
    place: list[str] = []
    for position, part in enumerate(location):
        if isinstance(part, int):
            place.append(str(part))
        elif part in model.model_fields:
            place.append(part)
            if position < len(location) - 1:
                model = _model_in(model.model_fields[part].annotation) or model
    return place, model


def _model_in(annotation: Any) -> type[BaseModel] | None:
    for inner in (annotation, *get_args(annotation)):
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            return inner
    return None
