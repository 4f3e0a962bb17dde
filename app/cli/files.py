"""Writing a file whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
from pathlib import Path

from app.cli.endings import CommandFailed, ExitCode, fail_usage

# RuntimeError: links that lead to each other; ValueError: a NUL character in the path.
_ERRORS = (OSError, ValueError, RuntimeError)


def check_place(path: Path) -> None:
    """Whether a file can be written there: before the minutes of measuring, not after. Raises CommandFailed."""
    if str(path) == "-":
        fail_usage("- is standard output, where the answer goes: give the name of a file.")
    try:
        if path.is_dir():
            fail_usage(f"{path} is a folder: give the name of a file in it.")
        if _keeps_its_place(path):
            return
        folder = path.resolve().parent
    except _ERRORS as error:
        fail_usage(f"{path.name} cannot be written: {_say(error)}.")
    if not folder.is_dir():
        fail_usage(f"{path.name} cannot be written: its folder {path.parent} does not exist.")
    if not os.access(folder, os.W_OK | os.X_OK):
        fail_usage(f"{path.name} cannot be written: its folder {path.parent} may not be written to.")


def write_whole(path: Path, content: bytes, mode: int | None = None) -> None:
    """The new content or the old one, whenever this is ended. mode: the file's permissions; None: as files are made
    here. Raises CommandFailed with a sentence."""
    try:
        if _keeps_its_place(path):
            with path.open("ab") as file:
                file.write(content)
        else:
            _replace(path.resolve(), content, mode)
    except _ERRORS as error:
        raise CommandFailed(f"{path.name} could not be written: {_say(error)}.", ExitCode.FAULT) from None


def _say(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _keeps_its_place(path: Path) -> bool:
    """A pipe, a device, or a file that another program has open for us (/dev/stdout)."""
    is_lent = path.is_symlink() and path.absolute().is_relative_to("/dev")
    return path.exists() and (is_lent or not path.is_file())


def _replace(path: Path, content: bytes, mode: int | None) -> None:
    """Written beside it, synced, then put in its place. The name begins with a dot, which those who read whatever lies
    in the folder pass over (Node Feature Discovery)."""
    beside = path.with_name(f".{path.name[:100]}.{secrets.token_hex(4)}")
    try:
        with beside.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            if mode is not None:
                os.fchmod(file.fileno(), mode)
        try:
            beside.replace(path)
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            path.write_bytes(content)  # mounted by itself, as a container's may be: another cannot take its place
    finally:
        beside.unlink(missing_ok=True)
