"""What a process that compiles is told: its cache lies in a folder that goes when the process is done with."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

# torch compiles in worker processes of its own otherwise, as many as there are cores, and keeps them.
_ONE_COMPILER = {"TORCHINDUCTOR_COMPILE_THREADS": "1"}


@contextmanager
def compiling_environment() -> Iterator[dict[str, str]]:
    """Variables for a process; nothing that was compiled before is found, and nothing stays. Raises OSError where no
    folder can be made. torch keeps precompiled headers below TMPDIR, whatever its cache is."""
    with tempfile.TemporaryDirectory(prefix="crosspoint-compile-", ignore_cleanup_errors=True) as folder:
        yield {**_ONE_COMPILER, "TORCHINDUCTOR_CACHE_DIR": folder, "TMPDIR": folder}
