"""One key for each spelling of a card's name: `NVIDIA GeForce RTX(TM) 3080Ti` and `rtx 3080 ti` are one card.

Only what cannot change which card is meant is smoothed out: case, trademark signs, hyphens, blanks, a missing blank
between a number and its suffix, and words that drivers and shops add or drop. What is left must match exactly.
"""

import re

MAX_NAME_CHARACTERS = 128  # the longest name that a driver reports has 56; everything longer is no name

_VENDORS = {"nvidia": "NVIDIA", "amd": "AMD", "ati": "AMD", "intel": "Intel", "apple": "Apple"}
_REWRITES = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"[®™]|\((?:r|tm|c)\)", " "),
        (r"[-_\s]+", " "),
        (r"\b(rtx|gtx|gt|rx)(?=\d)", r"\1 "),  # RTX3080
        (r"\bmx (?=\d)", "mx"),  # MX 450
        (r"(?<=\d)(ti|super|xtx?|gre)\b", r" \1"),  # 3080Ti, 7900XTX
        (r"\bti(?=super\b)", "ti "),
        (r"\b(?:with )?max q design\b", "max q"),
        (r"\b(?:laptop gpu|laptop|mobile)$", "laptop"),
        (r"\bembedded gpu$", "embedded"),
        (r"\b(ada|blackwell) generation\b", r"\1"),
        (r" +", " "),
    )
)
_SIZE = re.compile(r"(?<![\w.])(\d{1,4}) ?gb?\b")


def split_vendor(name: str) -> tuple[str | None, str]:
    """The vendor that the name begins with, if any, and the key of the rest."""
    key = make_key(name)
    first, _, rest = key.partition(" ")
    vendor = _VENDORS.get(first)
    return (vendor, rest.removeprefix("corporation ")) if vendor and rest else (None, key)


def make_key(name: str) -> str:
    """The spelling by which names are compared: lower case, single blanks, no trademark signs."""
    key = name.lower()
    for pattern, replacement in _REWRITES:
        key = pattern.sub(replacement, key)
    return key.strip()


def split_memory(key: str) -> tuple[str, int] | None:
    """The key without its memory size, and that size in GB; None where it names no size, or more than one."""
    sizes = list(_SIZE.finditer(key))
    if len(sizes) != 1:
        return None
    rest = f"{key[: sizes[0].start()].strip()} {key[sizes[0].end() :].strip()}".strip()
    return make_key(rest), int(sizes[0].group(1))  # a size stood behind "laptop gpu"
