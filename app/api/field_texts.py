"""What the members of documents are: the string beneath a field in its class, read from the source when asked for.

So a member's description stands once, beside the field, in `probes` as well, which knows nothing of the web. (pydantic
reads such strings, too: class by class, which takes three times as long, and without those of a TypedDict's bases.)
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import re
from collections.abc import Iterable, Mapping
from itertools import pairwise
from types import ModuleType

_JSON = {"None": "null", "True": "true", "False": "false"}

Texts = dict[str, dict[str, str]]


def read_texts(modules: Iterable[ModuleType], like: Mapping[str, str]) -> Texts:
    """Class -> field -> what it is. A field that says nothing is what it is in the class's bases or in the class that
    `like` names, which stand in the same module or in one before it. Without its source a module tells nothing."""
    texts: Texts = {}
    for module in modules:
        with contextlib.suppress(OSError):
            for node in ast.parse(inspect.getsource(module)).body:
                if isinstance(node, ast.ClassDef):
                    bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
                    known = [texts.get(name, {}) for name in (like.get(node.name, ""), *bases, node.name)]
                    texts[node.name] = {name: text for each in (*known, _own(node)) for name, text in each.items()}
    return texts


def in_words_of_json(text: str) -> str:
    """As documents spell it: `None` is `null` there."""
    return re.sub(r"\b(None|True|False)\b", lambda found: _JSON[found[0]], " ".join(text.split()))


def _own(node: ast.ClassDef) -> dict[str, str]:
    """Of the class alone."""
    return {
        field.target.id: in_words_of_json(below.value.value)
        for field, below in pairwise(node.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
        and isinstance(below.value.value, str)
    }
