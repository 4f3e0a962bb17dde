"""What the store's statements share."""

from __future__ import annotations

import json
from typing import Any, TypeAlias

Parameters: TypeAlias = tuple[object, ...]
Statement: TypeAlias = tuple[str, Parameters]


def dump(document: dict[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":"))


def forget_oldest(table: str, column: str, kept: int) -> Statement:
    """The statement that leaves the `kept` newest rows."""
    newest = f"(SELECT {column} FROM {table} ORDER BY {column} DESC LIMIT 1 OFFSET ?)"
    return (f"DELETE FROM {table} WHERE {column} < {newest}", (kept - 1,))
