"""One kernel's trial at a time among processes that trace beside each other.

Threads that wait for each other compute meanwhile. Where kernels of two processes share the cores, a trial of ten
milliseconds took up to 0.2 s of CPU time, and those of larger batches were left out as too long.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

_shared: IO[Any] | None = None


def share() -> str:
    """From now on this process takes turns with those that `join` what is given, a path that lives as long as this."""
    global _shared
    if _shared is None:
        _shared = tempfile.TemporaryFile()  # noqa: SIM115 - open until the process ends
    return f"/proc/{os.getpid()}/fd/{_shared.fileno()}"


def join(path: str) -> None:
    """Take turns with the process that shares this; where it cannot be opened, this one's trials wait for nobody's."""
    global _shared
    with contextlib.suppress(OSError):
        _shared = Path(path).open("rb")  # noqa: SIM115


@contextlib.contextmanager
def turn() -> Iterator[None]:
    """Waits until none of the others runs a kernel. Not to be nested; a process that ends gives its turn up."""
    if _shared is None:
        yield
        return
    import fcntl  # which Windows lacks, where nothing is shared

    fcntl.flock(_shared, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(_shared, fcntl.LOCK_UN)
