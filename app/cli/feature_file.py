"""A file that another program reads at any moment: the old one or the new one, never half of it."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from app.cli.endings import fail_usage


def write_whole(path: Path, text: str) -> None:
    """Write beside it under a name that begins with a dot, which Node Feature Discovery passes over, then rename."""
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        fail_usage(f"The file cannot be written where it should be: {error.strerror}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)  # whoever reads it is another user
        Path(temporary).replace(path)
    except OSError as error:
        fail_usage(f"The file cannot be written: {error.strerror}.")
    finally:
        with contextlib.suppress(FileNotFoundError):
            Path(temporary).unlink()
