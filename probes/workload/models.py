"""What a user wrote as a model -> a checked ModelDescription."""

from __future__ import annotations

import re

from probes.bounds import MAX_NAME_CHARACTERS
from probes.workload.catalogue import find_model
from probes.workload.description import InvalidModel, ModelDescription
from probes.workload.documents import kinds, parse_document
from probes.workload.wording import clean, describe

_TARGET = re.compile(r"(?!\d)\w+(\.(?!\d)\w+)*:(?!\d)\w+(\.(?!\d)\w+)*")

# What a process says while it waits for the function of a `python` model to return.
CALLING = "waiting for your own function"


def parse_model(value: object) -> ModelDescription:
    """A catalogue name, or an object with `layers`, `huggingface` or `summary`.

    Raises InvalidModel for anything else that JSON can hold, in milliseconds and without building anything.
    """
    if isinstance(value, str):
        return find_model(value)
    if not isinstance(value, dict):
        raise InvalidModel(f"The model is {describe(value)}; a catalogue name or an object with {kinds()} is expected.")
    return parse_document(value)


def python_model(target: str, version: str = "") -> ModelDescription:
    """`module:function`, the user's own Python: only the command line may call this, never what came over HTTP.

    version: see ModelDescription. The module is not imported here. Raises InvalidModel when the text is no such name.
    """
    if len(target) > MAX_NAME_CHARACTERS or not _TARGET.fullmatch(target):
        raise InvalidModel(
            f'"{clean(target)}" does not name Python code. Write module:function, as in train:make_model; '
            "the module is found as Python finds it from the current folder."
        )
    return ModelDescription("python", target, {"target": target}, version)
