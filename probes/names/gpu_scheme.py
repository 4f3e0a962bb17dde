"""Tier and suffix, read from a card's name by the scheme its family follows.

`geforce`: the last two digits are the tier (RTX 4070 -> 70); `mx` is the same rule with other meanings. `radeon`: the
number without its first digit and without zeros in front (RX 7900 -> 900, RX 9070 -> 70); `radeon-400` and
`radeon-9000` are the same rule with other meanings. `vega` and `arc`: the number (Vega 56, A770). What follows the
number is the suffix. `professional`, `apple` and `plain` names have no tier; the first two may still have a suffix.
"""

import re

_SIZE = re.compile(r"\b\d+ ?GB\b")
_PATTERNS = {
    "geforce": re.compile(r"(?:GTX|RTX|GT|GeForce) ?\d{1,2}(?P<tier>\d\d)(?P<suffix>\D.*)?$"),
    "mx": re.compile(r"MX\d(?P<tier>\d\d)(?P<suffix>\D.*)?$"),
    "radeon": re.compile(r"RX \d0*(?P<tier>\d{2,3})(?P<suffix>\D.*)?$"),
    "vega": re.compile(r"Vega (?P<tier>\d\d)$"),
    "arc": re.compile(r"Arc [AB](?P<tier>\d{3})(?P<suffix>\D.*)?$"),
    "apple": re.compile(r"M\d (?P<suffix>\w+)$"),
    "professional": re.compile(r"(?P<suffix>Laptop GPU|Embedded GPU|Max-Q|SFF)"),
    "plain": re.compile(r"(?!)"),
}
_PATTERNS["radeon-400"] = re.compile(r"RX \d(?P<tier>\d\d)(?P<suffix>.*)$")
_PATTERNS["radeon-9000"] = _PATTERNS["radeon"]
SCHEMES = tuple(_PATTERNS)


def split_name(name: str, scheme: str) -> tuple[str | None, str | None]:
    """Tier and suffix of a card's name as it stands in the table; None for what the name does not carry."""
    found = _PATTERNS[scheme].search(name)
    if found is None:
        return None, None
    parts = found.groupdict()
    return parts.get("tier"), _clean_suffix(parts.get("suffix") or "")


def _clean_suffix(text: str) -> str | None:
    text = _SIZE.sub("", text).replace("with Max-Q Design", "Max-Q").replace("Super", "SUPER")
    return " ".join(text.split()) or None
