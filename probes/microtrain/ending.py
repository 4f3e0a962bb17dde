"""Ends this process with all that it started, having waited for it.

The kernel counts what a process computed for the one that waits for it. Where nobody does it is lost, and whoever
started this one takes it for others' load (probes.own_time).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import time

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
WAIT_SECONDS = 0.5  # at most; what is killed ends in milliseconds, unless a driver holds it
LOOK_SECONDS = 0.005


def adopt_orphans() -> None:
    """From now on what a child leaves behind when it ends is this process's child (prctl(2), Linux alone)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_now() -> None:
    """End this process from any thread, whatever it is doing, with the compilers that it runs and what it forked to
    measure."""
    try:
        _end_children(time.monotonic() + WAIT_SECONDS)
    finally:
        os._exit(0)


def _end_children(deadline: float) -> None:
    from psutil import Error, Process

    while time.monotonic() < deadline:
        for child in Process().children(recursive=True):
            with contextlib.suppress(Error):
                child.kill()
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(LOOK_SECONDS)
