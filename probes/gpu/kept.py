"""An answer that is costly to get, kept while what it depends on stays the same: for minutes, never for good."""

import threading
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

_T = TypeVar("_T")
GOOD_SECONDS = 300.0  # a card may be lost or split without a trace in the key
POOR_SECONDS = 30.0  # an empty discovery must not last: a driver may be about to come up (ollama/ollama#18482)
MAX_KEYS = 16


class Kept(Generic[_T]):
    """The newest answers by key; one that was poor is asked for again soon."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._answers: dict[Hashable, tuple[float, _T]] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, ask: Callable[[], _T], is_good: Callable[[_T], bool]) -> _T:
        """What is kept for `key`, or what `ask` says now. Askers wait for one another: one child, not two."""
        with self._lock:
            found = self._answers.get(key)
            if found is not None and self._clock() < found[0]:
                return found[1]
            answer = ask()
            until = self._clock() + (GOOD_SECONDS if is_good(answer) else POOR_SECONDS)
            self._answers = dict(list(self._answers.items())[1 - MAX_KEYS :]) | {key: (until, answer)}
            return answer
