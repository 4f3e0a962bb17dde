"""The child's ends of the two pipes: jobs in, events out, one JSON object a line (docs/protocol.md)."""

from __future__ import annotations

import json
import os
import queue
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

# A job is some hundred kilobytes at most (a config with many labels); a line without end must not fill memory.
MAX_JOB_BYTES = 32 * 1024 * 1024
CHUNK_BYTES = 64 * 1024

Document = dict[str, Any]


class EventWriter:
    """Writes events to the standard output that this process was started with, and to nothing else.

    From here on everything else that is printed (by libraries, by C code, by children) goes to standard error.
    """

    def __init__(self, stdout: int = 1, stderr: int = 2) -> None:
        self._descriptor = os.dup(stdout)  # not inherited by children
        os.dup2(stderr, stdout)
        self._lock = threading.Lock()

    def write(self, event: Document) -> None:
        """Whole lines only, from any thread. Ends the process when nobody reads any more."""
        line = json.dumps(event, separators=(",", ":"), allow_nan=False).encode() + b"\n"
        with self._lock:
            try:
                view = memoryview(line)
                while view:
                    view = view[os.write(self._descriptor, view) :]
            except BrokenPipeError:
                os._exit(0)


class JobReader:
    """Reads lines in a thread of its own, so that the end of standard input is seen in the middle of a job.

    A pipe that ends means that whoever started this process is gone: `on_gone` is called at once, from the thread.
    A regular file that ends means only that there are no more jobs. From here on nobody else can read jobs: whoever
    reads `descriptor` (a user's model that asks a question) finds its end.
    """

    def __init__(self, descriptor: int, on_gone: Callable[[], object]) -> None:
        self._descriptor = os.dup(descriptor)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, descriptor)
        os.close(nothing)
        self._on_gone = on_gone
        self._is_file = stat.S_ISREG(os.fstat(self._descriptor).st_mode)
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, name="job reader", daemon=True).start()

    def __iter__(self) -> Iterator[bytes]:
        """One line a job; ends with a regular file."""
        while (line := self._lines.get()) is not None:
            if line.strip():
                yield line

    def _read(self) -> None:
        rest = b""
        while chunk := _read_chunk(self._descriptor):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._lines.put(line)
            if len(rest) > MAX_JOB_BYTES:
                print("A line on standard input is longer than any job; ended.", file=sys.stderr)  # noqa: T201
                break
        if self._is_file:
            self._lines.put(rest)
            self._lines.put(None)
        else:
            self._on_gone()


def _read_chunk(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, CHUNK_BYTES)
    except OSError:  # the other end is gone in another way
        return b""
