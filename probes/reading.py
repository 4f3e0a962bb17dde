"""Bounded reading below a root: the live machine's `/`, or a captured machine's folder.

Nothing here blocks on a pipe or a device, reads more than it was told to, or leaves a captured machine through a
symbolic link to mix this host's files in.
"""

import os
import re
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from errno import EACCES, EPERM
from pathlib import Path
from typing import Any, TypeVar

from probes.hardware import Outcome

_T = TypeVar("_T")

SMALL_FILE_BYTES = 64 * 1024  # a sysfs attribute is one page; cpumaps of 8192 CPUs take 18 kB
LARGE_FILE_BYTES = 16 * 1024 * 1024  # /proc/cpuinfo takes about 1.6 kB a CPU: 8192 CPUs are 13 MB
MAX_ENTRIES = 65_536  # names looked at in one folder; more CPUs or devices than any Linux machine has


_CHUNK_BYTES = 128 * 1024  # at once; the buffer is made anew for every file, and nearly all are shorter than a page
_MAX_NUMBER_CHARACTERS = 64
_NUMBER = re.compile(r"[+-]?(0[xX])?[0-9a-fA-F]+", re.ASCII)  # int() takes more: underscores, other scripts' digits
_NUMBERS_END = 1 << 64
_LINE = re.compile(r"[^\n]+")
_MAX_FIELDS = 4096  # keys of one file; memory.stat and meminfo have about 60


class Unreadable(Exception):
    """What a probe needs cannot be read; carries the probe's outcome and a sentence."""

    def __init__(self, outcome: Outcome, reason: str) -> None:
        super().__init__(reason)
        self.outcome = outcome
        self.reason = reason


class OutOfTime(Unreadable):
    """The deadline of the whole survey has passed; ends the probe, whichever file it was about to read."""

    def __init__(self) -> None:
        super().__init__(Outcome.TIMEOUT, "there is more to read than the deadline leaves time for")


class Root:
    """A folder that holds `proc`, `sys` and so on. Paths are given as on the machine itself: `/proc/cpuinfo`."""

    def __init__(self, path: Path = Path("/"), deadline_seconds: float | None = None) -> None:
        """deadline_seconds: reading ends with OutOfTime so long from now, lest a left thread reads on for ever."""
        try:
            resolved = os.path.realpath(path)
        except (OSError, ValueError):
            resolved = str(path)  # no name of a folder: `check` says so
        self.is_host = resolved == os.path.realpath("/")
        self.path = "" if self.is_host else resolved
        self._until = None if deadline_seconds is None else time.monotonic() + deadline_seconds
        self._folders: dict[str, str | None] = {"": self.path}
        self._memo: dict[str, Any] = {}
        self._lock = threading.RLock()  # one memory may be made from another

    @property
    def is_linux(self) -> bool:
        """Whether Linux's files are to be read here; elsewhere psutil is asked. Every captured machine is Linux.

        Python 3.13 and newer call Android (Termux) by its own name (Python's docs, sys.platform).
        """
        return not self.is_host or sys.platform.startswith(("linux", "android"))

    def check(self) -> None:
        """Raises Unreadable when the root itself is no folder that can be entered."""
        place = self.path or "/"
        if not os.path.exists(place):  # noqa: PTH110 - plain strings throughout: pathlib costs half of a survey
            raise Unreadable(Outcome.FAILED, "the sysroot does not exist; give a folder that holds proc and sys")
        if not os.path.isdir(place):  # noqa: PTH112
            raise Unreadable(Outcome.FAILED, "the sysroot is not a folder; unpack the captured machine first")
        if not os.access(place, os.X_OK):
            raise Unreadable(Outcome.DENIED, "the sysroot may not be entered; check its permissions")

    def resolve(self, path: str) -> str | None:
        """Where `path` lies, or None when a link of a captured machine leads out of it or the name is no name."""
        if self._until is not None and time.monotonic() > self._until:
            raise OutOfTime
        if "\0" in path or not path.startswith("/"):
            return None
        if self.is_host:
            return path
        return self._follow(self.path + path) if "/." in path or "//" in path else self._resolve_below(path)

    def _resolve_below(self, path: str) -> str | None:
        """Like `_follow`, one part at a time: a machine's thousands of files lie in some hundreds of folders."""
        above, _, name = path.rpartition("/")
        folder = self._folders.get(above) or self._resolve_folder(above)
        if folder is None:
            return None
        place = f"{folder}/{name}" if name else folder
        return self._follow(place) if os.path.islink(place) else place  # noqa: PTH114

    def _resolve_folder(self, path: str) -> str | None:
        if path not in self._folders:
            self._folders[path] = self._resolve_below(path)
        return self._folders[path]

    def _follow(self, place: str) -> str | None:
        try:
            resolved = os.path.realpath(place)
        except (OSError, ValueError):
            return None
        return resolved if (resolved + os.sep).startswith(self.path + os.sep) else None

    def read(self, path: str, limit: int = SMALL_FILE_BYTES) -> str | None:
        """The text of a regular file; None when there is none, it is refused, or it is longer than `limit` bytes."""
        try:
            return self.require(path, limit)
        except OutOfTime:
            raise
        except Unreadable:
            return None

    def read_if_there(self, path: str, limit: int = SMALL_FILE_BYTES) -> str | None:
        """Like `read`, where a file that is there and cannot be read must not pass for none. Raises Unreadable."""
        try:
            return self.require(path, limit)
        except Unreadable as unreadable:
            if unreadable.outcome is Outcome.ABSENT:
                return None
            raise

    def require(self, path: str, limit: int = LARGE_FILE_BYTES) -> str:
        """Like `read`, for what a probe cannot do without. Raises Unreadable."""
        place = self.resolve(path)
        if place is None:
            raise Unreadable(Outcome.FAILED, f"{path} leads out of the captured machine; it was not followed")
        try:
            # Opening a captured device or pipe would already do something to it; the host's own are never asked for.
            content = _read_regular(place, limit) if self.is_host or stat.S_ISREG(os.stat(place).st_mode) else None  # noqa: PTH116
        except OSError as error:
            raise _explain(path, error) from error
        if content is None:
            raise Unreadable(Outcome.FAILED, f"{path} is not a regular file; it was not read")
        if len(content) > limit:
            raise Unreadable(
                Outcome.FAILED, f"{path} is longer than {limit} bytes; no machine's is, so it was not read"
            )
        return content.replace(b"\0", b" ").decode("utf-8", "replace")  # a blank: "1" and "2" are not 12

    def read_words(self, path: str) -> list[str]:
        return (self.read(path) or "").split()

    def read_int(self, path: str, base: int = 10) -> int | None:
        """The number that a sysfs attribute holds, or None."""
        return parse_int(self.read(path), base)

    def remember(self, key: str, make: Callable[[], _T]) -> _T:
        """What `make` gives, made once for this root: several probes need /proc/cpuinfo, which is slow to write out."""
        with self._lock:
            if key not in self._memo:
                self._memo[key] = make()
            found: _T = self._memo[key]
            return found

    def list(self, path: str) -> list[str]:
        """Names in a folder, at most MAX_ENTRIES, sorted; empty when it cannot be listed."""
        place = self.resolve(path)
        if place is None:
            return []
        names = []
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    names.append(entry.name)
                    if len(names) >= MAX_ENTRIES:
                        break
        except OSError:
            return sorted(names)
        return sorted(names)

    def exists(self, path: str) -> bool:
        place = self.resolve(path)
        return place is not None and os.path.exists(place)  # noqa: PTH110

    def link_target(self, path: str) -> str | None:
        """What a symbolic link says, or None; the link is not followed."""
        if "\0" in path:
            return None
        try:
            return os.readlink(self.path + path)  # noqa: PTH115
        except (OSError, ValueError):
            return None


def _read_regular(place: str, limit: int) -> bytes | None:
    """At most limit + 1 bytes; None for anything but a regular file. Raises OSError."""
    descriptor = os.open(place, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        chunks: list[bytes] = []
        left = limit + 1
        while left > 0:
            chunk = os.read(descriptor, min(left, _CHUNK_BYTES))
            if not chunk:
                break
            chunks.append(chunk)
            left -= len(chunk)
        return b"".join(chunks)
    finally:
        os.close(descriptor)


def _explain(path: str, error: OSError) -> Unreadable:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return Unreadable(Outcome.ABSENT, f"{path} does not exist on this machine")
    if error.errno in (EACCES, EPERM):
        return Unreadable(Outcome.DENIED, f"{path} may not be read by this user")
    return Unreadable(Outcome.FAILED, f"{path} could not be read: {error.strerror or type(error).__name__}")


def parse_int(text: str | None, base: int = 10) -> int | None:
    """A number of at most 64 bits as the kernel writes it, or None; never an exception, whatever the text."""
    if text is None or len(text) > _MAX_NUMBER_CHARACTERS or not _NUMBER.fullmatch(text.strip()):
        return None
    try:
        number = int(text, base)
    except ValueError:
        return None
    return number if -_NUMBERS_END < number < _NUMBERS_END else None


def split_lines(text: str) -> Iterator[str]:
    """Lines one at a time: a list of the millions that a garbled file may hold takes ten times the file."""
    return (match[0] for match in _LINE.finditer(text))


def parse_fields(text: str, separator: str = ":") -> dict[str, str]:
    """`key: value` lines; the first of several equal keys wins."""
    fields: dict[str, str] = {}
    for line in split_lines(text):
        key, found, value = line.partition(separator)
        if found and len(fields) < _MAX_FIELDS:
            fields.setdefault(key.strip(), value.strip())
    return fields


def clean(text: str | None, limit: int = 256) -> str | None:
    """A name fit to show: printable, stripped, bounded; None when nothing is left."""
    if text is None:
        return None
    kept = "".join(letter for letter in text[: 4 * limit] if letter.isprintable()).strip()[:limit]
    return kept or None
