"""The machine's lock: one measurement at a time between all processes and users of a machine.

An advisory flock on a file in the folder for temporary files, which every user shares. The file is empty and is
never written; whoever made it, others only need to read it. The lock goes with the process that holds it. Who waits for
it for somebody shares another one meanwhile, by which whoever measures for nobody, in whatever process, knows that the
machine is wanted.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import stat
from pathlib import Path

log = logging.getLogger(__name__)


def machine_lock_path() -> Path:
    """Where every crosspoint on this machine looks for the lock.

    (tempfile.gettempdir() writes a file to find out, and fails on a full disk.)
    """
    return Path(os.environ.get("TMPDIR") or "/tmp") / "crosspoint-measurement.lock"


class MachineLock:
    """Held from `try_acquire` to `release`. is_shared: by several, which keeps out whoever wants it alone."""

    def __init__(self, path: Path | None = None, *, is_shared: bool = False) -> None:
        self._path = path or machine_lock_path()
        self._how = fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX
        self._descriptor: int | None = None

    def try_acquire(self) -> bool:
        """True: held now (or since before). False: somebody else measures.

        Where the file cannot be used (a link or a device in its place, a read-only folder) the lock counts as held:
        measuring beside somebody is better than not measuring at all.
        """
        if self._descriptor is not None:
            return True
        try:
            descriptor = _open_lock(self._path)
        except OSError as error:
            log.warning("The machine's measurement lock cannot be used (%s); going on without.", error.strerror)
            return True
        try:
            fcntl.flock(descriptor, self._how | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        except OSError:  # a file system without locks
            os.close(descriptor)
            return True
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def waiting_lock(path: Path | None = None) -> MachineLock:
    """For who waits for the machine's lock because somebody waits for its measurement."""
    return MachineLock(_beside(path), is_shared=True)


def is_wanted(path: Path | None = None) -> bool:
    """Whether anybody holds a `waiting_lock`."""
    try:
        descriptor = _open_lock(_beside(path))
    except OSError:  # whoever waits says so
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(descriptor)
    return False


def _beside(path: Path | None) -> Path:
    return (path or machine_lock_path()).with_suffix(".wanted")


def _open_lock(path: Path) -> int:
    """Open without following links, waiting on a pipe, or writing to what somebody else put there.

    Opened for reading first: in a sticky folder the kernel refuses O_CREAT on another user's file
    (fs.protected_regular), and flock needs no more than reading. Raises OSError.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        with contextlib.suppress(FileExistsError):
            made = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o644)
            os.fchmod(made, 0o644)  # whatever the umask says, other users have to read it
            os.close(made)
        descriptor = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, "something that is no file lies in its place")
    return descriptor
