"""Where a suite's figures go: known to be writable before an hour of measuring, not after."""

from __future__ import annotations

import argparse
from pathlib import Path


def output_file(text: str) -> Path:
    """For argparse: a file that can be written, its folder made where it was missing. What an earlier run wrote there
    stays until the new figures are."""
    path = Path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{path} is a folder; name a file in it, as {path / 'figures.json'}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        is_new = not path.exists()
        path.open("ab").close()
        if is_new:
            path.unlink()
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{path} cannot be written: {error.strerror or error}") from None
    return path
