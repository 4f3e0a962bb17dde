"""Takes what a client sent out of what it is told.

On the command line a message may repeat the name that somebody wrote; over HTTP it may not: logs and pages that show
problems would show whatever a stranger sends. Words that are ours (they stand in our own sources) stay: they help.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import app
import probes.workload
from probes.bounds import MAX_CONFIG_INTEGER
from probes.workload.architectures import read_architectures
from probes.workload.config_classes import read_config_classes, read_imported
from probes.workload.description import InvalidModel
from probes.workload.wording import clean

GONE = "…"
# A whole number up to this may be a size, a position or a bound of ours, and tells nothing.
SMALL_NUMBER = MAX_CONFIG_INTEGER
LONGEST_NUMBER_BITS = 1024
# A config has one model type, and parts of a few others; of all at once it takes 1.4 s to read the classes.
MOST_TYPES = 16
_WORD = re.compile(r"[^\W\d][\w.-]*")
_DEVICE = re.compile(r"cuda:\d{1,3}")
# Beside the sources that check models: those whose sentences answer a request.
_SPEAKERS = ("api/bodies.py", "advisor/plans.py", "advisor/request.py", "errors.py", "measurable.py")


def without_echo(message: str, sent: Any) -> str:
    """The message with an ellipsis in the place of each string of `sent` that is no word of ours or transformers, and
    of each number that is no small one. Takes seconds for a body of a million strings: not for the loop."""
    leaves = tuple(_leaves(sent))
    # Our own messages shorten what they name, those of torch and transformers do not.
    texts = {text for leaf in leaves if isinstance(leaf, str) for text in (clean(leaf), leaf.strip())}
    for text in texts:
        if text.endswith(GONE):
            message = message.replace(text, GONE)  # whole, whatever quotes or blanks are in it
    found = {text for text in texts if text and text in message and not _is_ours(text)}
    if found and "huggingface" in leaves:
        found -= _words_of_transformers(leaves)
    found |= {text for leaf in leaves if _is_large(leaf) for text in _written(leaf) if text in message}
    for text in sorted(found, key=len, reverse=True):  # what is part of a longer name is not what was sent
        message = re.sub(rf"(?<![\w-]){re.escape(text)}(?![\w-])", GONE, message)
    return message


def _is_large(leaf: Any) -> bool:
    """A number that is not small."""
    return isinstance(leaf, float) or (isinstance(leaf, int) and abs(leaf) > SMALL_NUMBER)


def _leaves(value: Any) -> Iterator[Any]:
    """Every value in a JSON value that holds no other, keys included, without recursion."""
    rest = [value]
    while rest:
        item = rest.pop()
        if isinstance(item, list):
            rest += item
        elif isinstance(item, dict):
            yield from item
            rest += item.values()
        else:
            yield item


def _written(number: int | float) -> set[str]:
    """How a message may write it. No message writes a longer number than a float can be; Python refuses to."""
    if isinstance(number, int) and number.bit_length() > LONGEST_NUMBER_BITS:
        return set()
    texts = {str(number), f"{number:,}", *((f"{number:g}",) if isinstance(number, float) else ())}
    return {text for text in texts if not text.isdigit() or len(text) >= len(str(SMALL_NUMBER))}


def _is_ours(text: str) -> bool:
    return text in our_words() or _DEVICE.fullmatch(text) is not None


@cache
def our_words() -> frozenset[str]:
    """The words of the sources that check requests: names of fields, layers, options and tasks, and plain English."""
    folder, ours = Path(probes.workload.__file__).parent, Path(app.__file__).parent
    files = [path for path in folder.iterdir() if path.suffix in (".py", ".toml")]
    texts = [path.read_text(encoding="utf-8") for path in (*files, *(ours / name for name in _SPEAKERS))]
    return _words_in("\n".join(texts))


def _words_of_transformers(leaves: tuple[Any, ...]) -> frozenset[str]:
    """Its model types, and what stands in the config classes of those that were sent and in what these import: names
    of their fields, which a sentence of its own may say to be mended."""
    try:
        known = read_architectures().model_types
    except InvalidModel:
        return frozenset()
    sent = known.intersection(leaf for leaf in leaves if isinstance(leaf, str))
    if len(sent) > MOST_TYPES:
        return known
    classes = "\n".join(map(read_config_classes, sent))
    return known | _words_in(classes) | _words_in(read_imported(classes))


def _words_in(text: str) -> frozenset[str]:
    """Words of a source, those with dots whole and in their parts."""
    words = set(_WORD.findall(text))
    return frozenset(words | {part for word in words for part in word.split(".")})
