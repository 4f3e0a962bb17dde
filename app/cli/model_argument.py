"""MODEL on the command line: a catalogue name, a JSON file or document, a folder that has a config.json, `-`, or
`module:function`."""

from __future__ import annotations

import os
import re
import sys
import uuid
from pathlib import Path
from typing import Any, BinaryIO

from app.cli.endings import fail_usage
from probes.bounds import MAX_BODY_BYTES
from probes.checked import Refused
from probes.strict_json import SPECIAL_FLOAT_ADVICE, NotFinite, parse_strict_json
from probes.workload.description import ModelDescription

CONFIG_KEYS = {"model_type", "auto_map"}  # each tells a bare config.json: one of a class of its own may lack the first
# `package.module:function`, as entry points are written.
PYTHON_TARGET = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def read_model(argument: str, task: str | None = None, sequence_length: int | None = None) -> ModelDescription:
    """Turn what stands on the command line into a checked model.

    task, sequence_length: for a bare Hugging Face config.json, which states neither. Raises InvalidModel, or
    CommandFailed where the file cannot be used.
    """
    from probes.workload.models import parse_model, python_model
    from probes.workload.python_sources import hash_source

    document = _read_document(argument)
    if document is not None:
        return parse_model(_with_task(document, task, sequence_length))
    _refuse_task(task, sequence_length)
    if PYTHON_TARGET.fullmatch(argument):
        if ".py:" in argument:
            fail_usage(f"Write {argument.replace('.py:', ':')}: module:function names a module, without .py.")
        # What its source is nobody knows: it may be another one each time, and is its own model then.
        return python_model(argument, hash_source(argument) or uuid.uuid4().hex)
    return parse_model(argument)


def _read_document(argument: str) -> Any | None:
    """The JSON that the argument is or points to; None when it is neither, but a name. A catalogue name is one beside
    a file that is called the same, too: weights, or a log."""
    from probes.workload.catalogue import is_model_name

    if argument == "-":
        return _parse_json(_read_bounded(sys.stdin.buffer, "standard input"), "standard input")
    if argument.lstrip().startswith("{"):
        return _parse_json(os.fsencode(argument), "MODEL")
    path, config = Path(argument), Path(argument) / "config.json"  # as transformers saves a model: in a folder
    if _is_file(config) and not is_model_name(argument):
        path = config
    if not (path.suffix == ".json" or "/" in argument or (_is_file(path) and not is_model_name(argument))):
        return None
    try:
        with path.open("rb") as file:
            return _parse_json(_read_bounded(file, path.name), path.name)
    except FileNotFoundError:
        fail_usage(f"There is no file {argument}. MODEL is a catalogue name, a .json file, - or module:function.")
    except (OSError, ValueError) as error:  # ValueError: a NUL character in the path
        fail_usage(f"{path.name or argument} cannot be read: {getattr(error, 'strerror', None) or error}.")


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # longer than any file's name
        return False


def _read_bounded(stream: BinaryIO, name: str) -> bytes:
    content = stream.read(MAX_BODY_BYTES + 1)
    if len(content) > MAX_BODY_BYTES:
        fail_usage(f"{name} is larger than {MAX_BODY_BYTES // 2**20} MiB, more than any model description needs.")
    return content


def _parse_json(content: bytes, name: str) -> Any:
    try:
        document = parse_strict_json(content)
    except NotFinite as error:
        fail_usage(f"{name} cannot be used: {error}. {SPECIAL_FLOAT_ADVICE}")
    except Refused as error:
        fail_usage(f"{name} cannot be used: {error}.")
    if document is None:
        fail_usage(f"{name} holds null, which describes no model.")
    return document


def _with_task(document: Any, task: str | None, sequence_length: int | None) -> Any:
    """Wrap a bare config.json, and let the options override what a document says."""
    if isinstance(document, dict) and CONFIG_KEYS & document.keys() and "huggingface" not in document:
        document = {"huggingface": document}
    if isinstance(document, dict) and "huggingface" in document:
        given = {"task": task, "sequence_length": sequence_length}
        return document | {key: value for key, value in given.items() if value is not None}
    _refuse_task(task, sequence_length)
    return document


def _refuse_task(task: str | None, sequence_length: int | None) -> None:
    if task is not None or sequence_length is not None:
        fail_usage("--task and --sequence-length only go with a Hugging Face config file.")
