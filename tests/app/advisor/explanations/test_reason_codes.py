"""docs/reasons.md lists every reason that an answer may hold, with its evidence."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from app.answering.answer_notes import NOT_SAVED

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs" / "reasons.md").read_text(encoding="utf-8")
# Chosen by the part that limits a step.
LIMITS = {"dispatch-bound", "launch-bound", "transfer-bound", "compute-bound", "synchronize-bound"}
NAMED = {"code": LIMITS, "NOT_SAVED": {NOT_SAVED}}


def codes_made() -> set[str]:
    """The first arguments of every Reason(…) in the program."""
    found: set[str] = set()
    for path in (ROOT / "app").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Reason":
                match node.args[0]:
                    case ast.Constant(value=str(code)):
                        found.add(code)
                    case ast.Name(id=name):
                        found |= NAMED[name]
    return found


def rows() -> dict[str, str]:
    """Code -> its row."""
    lines = [line for line in PAGE.splitlines() if line.startswith("| `")]
    return {code: line for line in lines for code in re.findall(r"`([a-z-]+)`", line.split("|")[1])}


def test_every_code_is_listed_and_no_other() -> None:
    assert codes_made() == rows().keys()


@pytest.mark.parametrize("code", sorted(LIMITS))
def test_what_limits_a_step_is_named_in_one_place(code: str) -> None:
    assert f'"{code}"' in (ROOT / "app" / "advisor" / "explanations" / "limit_reason.py").read_text(encoding="utf-8")
