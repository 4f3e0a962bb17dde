"""NVML's bits for why clocks are held down, as codes for programs and as words for people."""

import tomllib
from functools import cache
from pathlib import Path

_TABLE = Path(__file__).with_name("throttle.toml")


def parse_throttle_mask(mask: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The words, none where the card is merely idle; and the codes. A bit that nobody has named is left out."""
    rows = [row for row in _read_rows() if mask & row[0]]
    return tuple(words for _, _, words in rows if words), tuple(code for _, code, _ in rows)


@cache
def _read_rows() -> tuple[tuple[int, str, str | None], ...]:
    table = tomllib.loads(_TABLE.read_text(encoding="utf-8"))
    return tuple((row["bit"], row["code"], row.get("words")) for row in table["reason"])
