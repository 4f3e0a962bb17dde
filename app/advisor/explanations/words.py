"""Numbers in words, for sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence

_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
_LONG = ((86_400.0, "days"), (3600.0, "h"), (60.0, "min"))
_BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def say_seconds(seconds: float) -> str:
    """`31 ms`, `1.4 s`, `820 µs`: two figures, as measurements are not better."""
    for unit, name in _SECONDS:
        if abs(seconds) >= unit:
            return f"{_two_figures(seconds / unit)} {name}"
    return f"{_two_figures(seconds / 1e-9)} ns"


def say_duration(seconds: float) -> str:
    """`8.3 min`, `2.4 h`, `12 days`: of a whole run; below two minutes as `say_seconds` has it."""
    for unit, name in _LONG:
        if seconds >= 2 * unit:
            return f"{_two_figures(seconds / unit)} {name}"
    return say_seconds(seconds)


def say_bytes(size: float) -> str:
    """`9.1 GB`; powers of ten, as data sheets have them."""
    for unit, name in _BYTES:
        if abs(size) >= unit:
            return f"{_two_figures(size / unit)} {name}"
    return f"{size:.0f} bytes"


def say_ratio(ratio: float) -> str:
    """`14 times`, `1.3 times`."""
    return f"{_two_figures(ratio)} times"


def say_percent(share: float) -> str:
    return f"{_two_figures(share * 100)} %"


def say_list(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`; commas inside names make it semicolons."""
    separator = "; " if any("," in name for name in names) else ", "
    if len(names) < 2:
        return "".join(names)
    return f"{separator.join(names[:-1])} and {names[-1]}"


def _two_figures(value: float) -> str:
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    digits = 1 - math.floor(math.log10(abs(value)))
    rounded = round(value, digits)
    return f"{rounded:,.{max(digits, 0)}f}" if abs(rounded) < 10 else f"{rounded:,.0f}"
