"""Numbers as people read them: pure functions from seconds, bytes and counts to short text."""

from __future__ import annotations

import math
from typing import Any

UNKNOWN = "?"

_TIME_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_BYTE_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
_COUNT_UNITS = ("", " thousand", " million", " billion", " trillion", " quadrillion")


def format_seconds(seconds: float | None) -> str:
    """Three significant digits with the unit that suits: `31 ms`, `1.52 s`, `4 min 20 s`, `2.5 h`, `3.1 days`."""
    if seconds is None:
        return UNKNOWN
    if seconds < 0:
        return f"-{format_seconds(-seconds)}"
    if seconds >= 120:
        return _format_long(seconds)
    for size, unit in _TIME_UNITS:
        if seconds >= size * 0.9995:
            return f"{_three_digits(seconds / size)} {unit}"
    return "0 s" if seconds == 0 else f"{_three_digits(seconds / 1e-9)} ns"


def _format_long(seconds: float) -> str:
    if seconds < 2 * 3600:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes} min {rest} s"
    if seconds < 48 * 3600:
        return f"{_three_digits(seconds / 3600)} h"
    return f"{_three_digits(seconds / 86400)} days"


def format_bytes(size: float | None) -> str:
    """Decimal units, as a verdict speaks: `9.1 GB`."""
    if size is None:
        return UNKNOWN
    if size < 0:
        return f"-{format_bytes(-size)}"
    for unit in _BYTE_UNITS[:-1]:
        if size < 999.5:
            return f"{_three_digits(size)} {unit}"
        size /= 1000
    return f"{_three_digits(size)} {_BYTE_UNITS[-1]}"


def format_count(count: float | None) -> str:
    """`25.6 million`; below ten thousand as it stands."""
    if count is None:
        return UNKNOWN
    if abs(count) < 10_000:
        return f"{_three_digits(count)}" if isinstance(count, float) else str(count)
    value = float(count)
    for unit in _COUNT_UNITS[:-1]:
        if abs(value) < 999.5:
            return f"{_three_digits(value)}{unit}"
        value /= 1000
    return f"{_three_digits(value)}{_COUNT_UNITS[-1]}"


def format_number(value: float | None) -> str:
    """As it stands, a whole one without decimals: `4`, `1.5`."""
    return UNKNOWN if value is None else f"{value:g}"


def format_share(share: float | None) -> str:
    """A fraction as per cent: `4.2 %`, and `<0.1 %` rather than a zero that is none."""
    if share is None:
        return UNKNOWN
    if 0 < share < 0.001:
        return "<0.1 %"
    return f"{share * 100:.0f} %" if share >= 0.0995 else f"{share * 100:.1f} %"


def format_timing(timing: dict[str, Any] | None) -> str:
    """A median with the range around it: `31 ms (29 to 34)`. Of a measurement's samples that is their 10th to 90th
    percentile, of an answer where a step lies in four cases of five."""
    if timing is None:
        return UNKNOWN
    middle = format_seconds(timing["median"])
    low, high = format_seconds(timing["low"]), format_seconds(timing["high"])
    if low == high:
        return middle
    if low.partition(" ")[2] == high.partition(" ")[2] == middle.partition(" ")[2]:
        low, high = low.partition(" ")[0], high.partition(" ")[0]
    return f"{middle} ({low} to {high})"


def _three_digits(value: float) -> str:
    if value >= 99.95:
        return f"{value:.0f}"
    text = f"{value:.3g}"
    # Two digits of what is below a ten thousandth, where three are mostly zeros.
    return text if "e" not in text else f"{value:.{1 - math.floor(math.log10(abs(value)))}f}"
