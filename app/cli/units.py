"""Numbers as people read them: pure functions from seconds, bytes and counts to short text."""

from __future__ import annotations

from typing import Any

from probes import figures

UNKNOWN = "?"

_BYTE_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
_COUNT_UNITS = ("", " thousand", " million", " billion", " trillion", " quadrillion")


def format_seconds(seconds: float | None) -> str:
    """Three significant digits with the unit that suits: `31 ms`, `1.52 s`, `4 min 20 s`, `2.5 h`, `3.1 days`."""
    return UNKNOWN if seconds is None else figures.format_seconds(seconds)


def format_bytes(size: float | None) -> str:
    """Decimal units, as a verdict speaks: `9.1 GB`."""
    if size is None:
        return UNKNOWN
    if size < 0:
        return f"-{format_bytes(-size)}"
    for unit in _BYTE_UNITS[:-1]:
        if size < 999.5:
            return f"{figures.three_digits(size)} {unit}"
        size /= 1000
    return f"{figures.three_digits(size)} {_BYTE_UNITS[-1]}"


def format_count(count: float | None) -> str:
    """`25.6 million`; below ten thousand as it stands."""
    if count is None:
        return UNKNOWN
    if abs(count) < 10_000:
        return f"{figures.three_digits(count)}" if isinstance(count, float) else str(count)
    value = float(count)
    for unit in _COUNT_UNITS[:-1]:
        if abs(value) < 999.5:
            return f"{figures.three_digits(value)}{unit}"
        value /= 1000
    return f"{figures.three_digits(value)}{_COUNT_UNITS[-1]}"


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
    """A median with the range around it: `31 ms (29 to 34)`."""
    return UNKNOWN if timing is None else figures.format_timing(timing)
