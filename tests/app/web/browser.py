"""A real Chromium without a window, asked for what a page has become."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed (Debian: apt install chromium)")

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
    # Timers run at once while nothing is being fetched, and stand still while something is.
    "--virtual-time-budget=20000",
)


def render(address: str, profile: Path) -> tuple[str, list[str]]:
    """The document after its scripts ran, and what they wrote to the console."""
    assert CHROMIUM is not None
    finished = subprocess.run(
        (CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "--dump-dom", address),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return finished.stdout, [line for line in finished.stderr.splitlines() if "CONSOLE" in line]
