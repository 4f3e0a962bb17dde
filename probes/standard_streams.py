"""Standard streams that were closed before a program began (`2>&-`, cron): made anew, leading nowhere."""

from __future__ import annotations

import os
import sys

STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))  # in the order of their descriptors


def open_closed_streams() -> None:
    """Python has None for such a stream. What is written to it goes nowhere from here on, and nothing is to be read.

    Called before anything else is opened, it also keeps descriptors 0 to 2 from becoming a socket or a file, into which
    a library's or a child's words would go.
    """
    for name, mode in STREAMS:
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)  # the lowest that is free: the closed stream's own
            os.set_inheritable(descriptor, True)
            setattr(sys, name, os.fdopen(descriptor, mode, encoding="utf-8"))
