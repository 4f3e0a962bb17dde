"""Who waits is told while the user's own function runs: one that never returns cannot say so itself."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator

_listeners: list[tuple[int, Callable[[bool], object]]] = []  # with the process that each is in: not of one forked off


@contextlib.contextmanager
def listened_to(listener: Callable[[bool], object]) -> Iterator[None]:
    """It is told True when the function is called, and False once it has returned or failed."""
    heard = (os.getpid(), listener)
    _listeners.append(heard)
    try:
        yield
    finally:
        _listeners.remove(heard)


@contextlib.contextmanager
def called() -> Iterator[None]:
    _tell(True)
    try:
        yield
    finally:
        _tell(False)


def _tell(is_running: bool, /) -> None:
    for process, listener in _listeners:
        if process == os.getpid():
            listener(is_running)
