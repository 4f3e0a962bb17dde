"""The page at GET /, and the folder of what it loads."""

from __future__ import annotations

from pathlib import Path

WEB = Path(__file__).parent
# Served at /static: scripts, styles, and under vendor/ the chart library with its licence.
STATIC = WEB / "static"


def read_page() -> bytes:
    """The page: UTF-8 HTML. It has no inline script or style, so that `default-src 'self'` lets it run."""
    return (STATIC / "page.html").read_bytes()
