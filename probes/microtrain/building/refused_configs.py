"""Why transformers makes no model of a config, in a sentence for whoever wrote it."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from probes.microtrain.failures import is_out_of_memory
from probes.workload.config import Place
from probes.workload.description import InvalidModel
from probes.workload.wording import clean, describe, place

# Characters of transformers' own explanation that are passed on: its longest about sizes that contradict each other,
# of convolutions (HuBERT), has 265.
_LONGEST_REASON = 300
# Where several kinds are taken, the widest number is what is meant.
_KINDS = {
    "float": "a number", "int": "a whole number", "str": "a name", "bool": "true or false",
    "list": "a list", "tuple": "a list", "Sequence": "a list",
    "dict": "an object", "PreTrainedConfig": "an object",
}  # fmt: skip
# What transformers 5 calls a field, by the name that it has in published configs.
RENAMED = {"rope_scaling": "rope_parameters"}


@contextmanager
def explained(written: dict[str, Any]) -> Iterator[None]:
    """Around transformers at work on a config: whatever it chokes on raises InvalidModel, but for memory."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # advice for those who load weights
            yield
    except InvalidModel:
        raise
    except Exception as error:  # a config that transformers chokes on can raise anything
        if is_out_of_memory(error):
            raise
        raise InvalidModel(_say(written, error)) from error


def _say(written: dict[str, Any], error: Exception) -> str:
    model_type = written["model_type"]
    options = {name: value for name, value in written.items() if name != "model_type"}
    places = list(_places(("huggingface",), options))
    cause = _cause(error)
    if isinstance(cause, KeyError):
        told = _name_value(model_type, places, cause)
    else:
        told = _name_field(model_type, places, error, cause)
    return told or _explain(model_type, cause)


def _places(where: Place, options: dict[str, Any]) -> Iterator[tuple[Place, Any]]:
    """Every value of a config with its place, outer ones first."""
    for key, value in options.items():
        yield (*where, key), value
    for key, value in options.items():
        if isinstance(value, dict):
            yield from _places((*where, key), value)


def _cause(error: BaseException) -> BaseException:
    """What a config class's check found, without what huggingface_hub wraps it in."""
    while type(error).__name__.startswith("StrictDataclass") and error.__cause__ is not None:
        error = error.__cause__
    return error


def _name_value(model_type: str, places: list[tuple[Place, Any]], error: KeyError) -> str | None:
    """The place of a name that transformers looked up in a table of its own, as of activations."""
    from transformers.activations import ACT2CLS

    names = [(where, value) for where, value in places if isinstance(value, str)]
    for where, value in names:
        looked_up = "act" in where[-1] and value not in ACT2CLS
        if looked_up and re.search(rf"\b{re.escape(value)}\b", str(error)):
            usual = ", ".join(name for name in ("gelu", "gelu_new", "relu", "silu", "tanh") if name in ACT2CLS)
            return f"{place(where)} names no activation that transformers has ({usual}, …)."
    key = error.args[0] if error.args else None
    found = (f"{place(where)} is {describe(value)}" for where, value in names if value == key)
    compare = f"which transformers does not know. Compare it with a published {clean(model_type)} config."
    return next((f"{which}, {compare}" for which in found), None)


def _name_field(model_type: str, places: list[tuple[Place, Any]], error: Exception, cause: BaseException) -> str | None:
    """The place of a value of another kind than its config class takes; where it is written under a name that nobody
    knows here, what transformers calls it."""
    found = re.match(r"Validation error for field '(\w+)'", str(error))
    if found is None:
        return None
    field, said = found[1], str(cause)
    item = re.search(rf"Invalid item at index (\d+) in \w+ '{field}'", said)
    expected = f"has to be {_kind_of_item(cause) if item else _kind_taken(said)}."
    at = f"[{item[1]}]" if item else ""
    names = _names_of(model_type, field)
    written = [(where, value) for where, value in places if where[-1] in names]
    written.sort(key=lambda one: repr(one[1]) not in said)  # of several of this name the one that is refused
    if not written:
        return f"{_no_model(model_type)} transformers' field {field}{at} {expected}"
    return f"{place(written[0][0])}{at} {expected}"


def _names_of(model_type: str, field: str) -> set[str]:
    """How a config may call a field of its class."""
    from transformers import CONFIG_MAPPING

    also = RENAMED | (getattr(CONFIG_MAPPING[model_type], "attribute_map", None) or {})
    return {field} | {name for name, real in also.items() if real == field}


def _kind_taken(said: str) -> str:
    choice = re.search(r"expected (one of \([^)]*\)), got", said)
    if choice is not None:
        return choice[1]
    return _in_words(re.findall(r"expected (?:an? )?(\w+), got", said))


def _kind_of_item(error: BaseException) -> str:
    """Of a list's."""
    taken = re.findall(r"\b(?:list|tuple|Sequence)\[(\w+)", str(error))
    return _in_words(taken) if taken else _kind_taken(str(error.__cause__))


def _in_words(kinds: Iterable[str]) -> str:
    taken = set(kinds)
    return next((words for kind, words in _KINDS.items() if kind in taken), "of another kind")


def _explain(model_type: str, error: BaseException) -> str:
    """What transformers said, where that is fit to be passed on."""
    what, compare = _no_model(model_type), f"Compare it with a published {clean(model_type)} config."
    if isinstance(error, ImportError):
        named = list(dict.fromkeys(re.findall(r"requires the (\w+) library", str(error))))
        which = f"{' and '.join(named)}, which" if named else "a library that"
        return f"{what} Models of this type need {which} {'are' if len(named) > 1 else 'is'} not installed here."
    unset = isinstance(error, TypeError | AttributeError) and "NoneType" in str(error)
    if unset or "element of type None" in str(error):
        return f"{what} A value that it needs is missing or null. {compare}"
    said = _fit_to_say(error)
    if said:
        return f"{what} transformers says: {said} Check its values against each other."
    return f"{what} transformers fails with {type(error).__name__}. {compare}"


def _no_model(model_type: str) -> str:
    return f"No {clean(model_type)} model can be built from this config."


def _fit_to_say(error: BaseException) -> str:
    """A sentence of its own. Empty where it has none for people: paths, addresses, objects, bare keys, or what Python
    says by itself."""
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = " ".join(lines[:2])
    compared = re.sub(r"\s[<>]=?\s", " ", said)  # `num_labels > 1`
    of_python = isinstance(error, LookupError | AttributeError | TypeError)
    sentence = not of_python or (isinstance(error, KeyError) and " " in said)
    if not said or not sentence or re.search(r"[/\\<>]|0x", compared) or not said.isprintable():
        return ""
    if len(said) <= _LONGEST_REASON:
        return f"{said.rstrip('.')}."
    clause = re.match(r".*[.,;](?=\s)", said[:_LONGEST_REASON])
    return f"{clause[0]} …" if clause is not None else ""
