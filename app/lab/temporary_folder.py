"""Where a measuring process has its temporary files: whoever started it removes them, or, where that was killed as
well, whoever comes later."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

# Of a measuring process, and of what torch.compile writes for one.
CHILD, COMPILE = "crosspoint-child-", "crosspoint-compile-"
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# One that is being made has no lock yet, for microseconds.
LEAST_AGE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class TemporaryFolder:
    """Use `make`, then `remove`. Until then a lock is held on it, which goes with this process, however that ends."""

    path: str
    _descriptor: int | None

    @classmethod
    def make(cls, prefix: str = CHILD) -> TemporaryFolder | None:
        """None on a full disk."""
        try:
            path = tempfile.mkdtemp(prefix=prefix)
        except OSError:
            return None
        return cls(path, _lock(path))

    def remove(self) -> None:
        """With all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._descriptor is not None:
            os.close(self._descriptor)


def remove_left_folders() -> None:
    """Remove this user's that no process holds any more; what cannot be removed stays."""
    with contextlib.suppress(OSError):  # no folder can be written
        for prefix in (CHILD, COMPILE):
            for path in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
                _remove_left(path)


def _remove_left(path: Path) -> None:
    with contextlib.suppress(OSError):
        facts = path.lstat()
        if facts.st_uid != os.getuid() or time.time() - facts.st_mtime < LEAST_AGE_SECONDS:
            return
    descriptor = _lock(path)
    if descriptor is not None:
        shutil.rmtree(path, ignore_errors=True)
        os.close(descriptor)


def _lock(path: Path | str) -> int | None:
    """What holds the lock; None where another process does, or the file system has none: then nobody else gets it."""
    descriptor = None
    try:
        descriptor = os.open(path, _FLAGS)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        if descriptor is not None:
            os.close(descriptor)
        return None
    return descriptor
