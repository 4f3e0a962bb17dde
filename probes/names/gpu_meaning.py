"""What tier, suffix and segment of a card mean to a learner, in sentences from `gpu_meanings.toml`."""

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any


def explain_tier(scheme: str, tier: str | None, segment: str) -> str:
    """What the tier is good for when training, or the segment where there is no tier; and that memory decides first."""
    table = _load()
    sentences = []
    if tier is not None:
        sentences.append(table["tiers"][scheme][tier])
    if tier is None or segment == "laptop":
        sentences.append(table["segments"][segment])
    return " ".join([*sentences, table["memory_first"]])


def explain_suffix(vendor: str, suffix: str | None) -> str | None:
    """What the suffix means; a suffix of several words (`Ti SUPER`) is explained word by word."""
    if suffix is None:
        return None
    table = _load()["suffixes"].get(vendor, {})
    words = re.findall(_pattern(vendor), suffix)
    return " ".join(table[word] for word in words) or None


@cache
def _pattern(vendor: str) -> str:
    words = sorted(_load()["suffixes"].get(vendor, {}), key=len, reverse=True)
    return rf"(?<!\w)(?:{'|'.join(map(re.escape, words))})(?!\w)"


@cache
def _load() -> dict[str, Any]:
    return tomllib.loads((Path(__file__).parent / "gpu_meanings.toml").read_text(encoding="utf-8"))
