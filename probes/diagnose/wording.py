"""Figures and lists as findings write them."""

from __future__ import annotations

from collections.abc import Sequence


def in_gb(size: int | float) -> str:
    """Sizes in GB, small ones in MB, as disks and cards are sold."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def in_percent(fraction: float) -> str:
    return f"{100 * fraction:.0f} %"


def listed(words: Sequence[str], most: int = 4) -> str:
    """`a, b, and 3 more`."""
    shown = list(words[:most])
    left = len(words) - len(shown)
    return ", ".join([*shown, *([f"and {left} more"] if left else [])])
