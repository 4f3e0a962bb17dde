"""Standard output whose errors can be told from all others: they are its reader's, or its disk's, and no fault here."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class OutputLost(OSError):
    """What was printed could not be written, whoever printed it: a command, click's help, or rich."""


class _Output(io.FileIO):
    def write(self, data: ReadableBuffer, /) -> int:
        """Raises OutputLost."""
        try:
            written = super().write(data)
        except OSError as error:
            raise OutputLost(error.errno, error.strerror) from None
        if written is None:  # it was opened not to wait for its reader, who does not keep up
            raise OutputLost(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return written


def mark_output_errors() -> None:
    """From here on what standard output meets is an OutputLost. A stream that is no file, pipe or terminal of this
    process stays as it is: a test's, a console of Windows, or one that leads nowhere."""
    stream = sys.stdout
    if not isinstance(stream, io.TextIOWrapper) or stream is not sys.__stdout__:
        return
    raw = getattr(stream.buffer, "raw", stream.buffer)
    if type(raw) is io.FileIO:
        stream.flush()
        marked = io.BufferedWriter(_Output(raw.fileno(), "w", closefd=False))
        sys.stdout = io.TextIOWrapper(marked, stream.encoding, stream.errors, line_buffering=stream.line_buffering)
