"""NVIDIA's cards as they change, from one long-lived NVML process that asks them a few questions each interval.

    watch = NvmlWatch(interval_seconds=1.0)
    watch.start()          # returns at once; does nothing where there is no driver, and looks again now and then
    watch.latest()         # Watched: never blocks, never raises
    watch.stop()           # ends the process; start() may follow

The process initialises NVML once, again after a card was lost or appeared, and ends when its parent does. Should it
crash or hang, another is started after a pause that doubles up to a minute. `latest()` then keeps giving the last facts,
with their growing age: whoever shows them decides what is too old.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Watched:
    """What was last told of each card.

    cards: by Accelerator.id (a GPU's or MIG instance's UUID); each holds DYNAMIC_FIELDS of Accelerator by name (tuples
    as tuples, what is unknown None) and `process_count`. A lost card stays while the driver lists it, with `usable`
    False and `why_not`; one that went away is not there.
    age_seconds: since the last telling; None: nothing was told yet (no driver, or just started).
    reason: a sentence when NVML does not answer now; None when all is well or there is no driver.
    """

    cards: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    age_seconds: float | None = None
    reason: str | None = None


class NvmlWatch:
    def __init__(self, interval_seconds: float = 1.0, environment: dict[str, str] | None = None) -> None:
        self._interval_seconds = interval_seconds
        self._environment = dict(os.environ) if environment is None else environment

    def start(self) -> None:
        """Begins watching; a second call changes nothing."""

    def latest(self) -> Watched:
        return Watched()

    def stop(self) -> None:
        """Ends the process and waits for it, two seconds at most; harmless when nothing runs."""
