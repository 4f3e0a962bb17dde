"""Where a suite's figures go: known to be writable before an hour of measuring, not after."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any


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


class Unfinished:
    """The rows of a run that has not ended, in a file beside its output's: what broke off a run keeps them there."""

    def __init__(self, output: Path) -> None:
        self.path = output.with_suffix(".unfinished.json")

    def keep(self, rows: list[dict[str, Any]]) -> None:
        """All rows so far, in the place of those before."""
        self.path.write_text(json.dumps({"rows": rows}) + "\n", encoding="utf-8")

    def end(self) -> None:
        self.path.unlink(missing_ok=True)
