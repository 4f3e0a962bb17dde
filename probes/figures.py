"""Figures as people read them, in sentences and tables alike: seconds and memory, with the unit that suits."""

from __future__ import annotations

import math
from collections.abc import Mapping

GIB = 1 << 30

_TIME_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def format_seconds(seconds: float) -> str:
    """Three significant digits: `31 ms`, `1.52 s`, `4 min 20 s`, `2.5 h`, `3.1 days`."""
    if seconds < 0:
        return f"-{format_seconds(-seconds)}"
    if seconds >= 120:
        return _format_long(seconds)
    for size, unit in _TIME_UNITS:
        if seconds >= size * 0.9995:
            return f"{three_digits(seconds / size)} {unit}"
    return "0 s" if seconds == 0 else f"{three_digits(seconds / 1e-9)} ns"


def _format_long(seconds: float) -> str:
    if round(seconds) < 2 * 3600:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes} min {rest} s"
    if seconds < 48 * 3600:
        return f"{three_digits(seconds / 3600)} h"
    return f"{three_digits(seconds / 86400)} days"


def format_timing(timing: Mapping[str, float]) -> str:
    """A `median` with `low` and `high` around it, in seconds: `31 ms (29 to 34)`. Of a measurement's samples that is
    their 10th to 90th percentile, of an answer where a step lies in four cases of five."""
    middle = format_seconds(timing["median"])
    low, high = format_seconds(timing["low"]), format_seconds(timing["high"])
    if low == high:
        return middle
    if low.partition(" ")[2] == high.partition(" ")[2] == middle.partition(" ")[2]:
        low, high = low.partition(" ")[0], high.partition(" ")[0]
    return f"{middle} ({low} to {high})"


def format_gib(size: float) -> str:
    """Bytes in powers of two, as memory is sold: `8 GiB`, `1536 GiB`."""
    return f"{three_digits(size / GIB)} GiB"


def three_digits(value: float) -> str:
    """As it is written, without an exponent; all digits of a whole number that has more. From 0 up."""
    if value >= 99.95:
        return f"{value:.0f}"
    text = f"{value:.3g}"
    # Two digits of what is below a ten thousandth, where three are mostly zeros.
    return text if "e" not in text else f"{value:.{1 - math.floor(math.log10(abs(value)))}f}"
