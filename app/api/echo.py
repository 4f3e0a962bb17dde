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

import probes.workload
from probes.workload.wording import clean

GONE = "…"
_WORD = re.compile(r"[^\W\d][\w.-]*")
# A name that was shortened no longer equals what was sent, and ends or is joined with an ellipsis.
_SHORTENED = re.compile(r'[^\s"]*…[^\s"]*')


def without_echo(message: str, sent: Any) -> str:
    """The message with an ellipsis in the place of each string of `sent` that is no word of ours."""
    message = _SHORTENED.sub(GONE, message)
    found = {text for text in map(clean, strings_in(sent)) if text and text in message and text not in our_words()}
    for text in sorted(found, key=len, reverse=True):
        message = re.sub(rf"(?<!\w){re.escape(text)}(?!\w)", GONE, message)
    return message


def strings_in(value: Any) -> Iterator[str]:
    """Every string in a JSON value, keys included, without recursion."""
    rest = [value]
    while rest:
        item = rest.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, list):
            rest += item
        elif isinstance(item, dict):
            yield from item
            rest += item.values()


@cache
def our_words() -> frozenset[str]:
    """The words of the sources that check models: names of layers, options and tasks, and plain English."""
    folder = Path(probes.workload.__file__).parent
    texts = [path.read_text(encoding="utf-8") for path in folder.iterdir() if path.suffix in (".py", ".toml")]
    words = {word for text in texts for word in _WORD.findall(text)}
    return frozenset(words | {part for word in words for part in word.split(".")})
