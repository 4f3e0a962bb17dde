"""What happens when one step takes longer than the whole time: it cannot be stopped, so the answer goes without it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class OverdueGuard:
    """Calls `on_overdue` from a thread of its own once `is_due()` says so; never after `__exit__` began.

    on_overdue should end the process: the step in the main thread goes on for as long as it takes.
    """

    LOOK_SECONDS = 0.25

    def __init__(self, is_due: Callable[[float], bool], on_overdue: Callable[[], object]) -> None:
        self._is_due = is_due
        self._on_overdue = on_overdue
        self._done = threading.Event()
        self._ending = threading.Lock()
        self._thread = threading.Thread(target=self._look, name="overdue guard", daemon=True)

    def __enter__(self) -> OverdueGuard:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._ending:
            self._done.set()

    def _look(self) -> None:
        while not self._done.wait(self.LOOK_SECONDS):
            if self._is_due(time.perf_counter()):
                with self._ending:
                    if not self._done.is_set():
                        self._on_overdue()
                        return
