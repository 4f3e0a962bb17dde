"""Which of several timings of the same count, where some met slow cores alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar


class Timed(Protocol):
    @property
    def reckoned(self) -> bool:
        """Its times were taken on slow cores, and reckoned back to calm ones (probes.microtrain.quiet.calm)."""


T = TypeVar("T", bound=Timed)


def told_if_reckoned(timed: Timed) -> dict[str, bool]:
    """The member of a document that says so, as few are."""
    return {"reckoned": True} if timed.reckoned else {}


def on_calm_cores(timed: Sequence[T]) -> Sequence[T]:
    """Those that met calm cores; all where none did. How much one step suffered differs from the next, so that what is
    reckoned of an operation lies from 20 % below to 35 % above what it takes on calm cores, four times in five
    (docs/decisions/0013)."""
    return [each for each in timed if not each.reckoned] or timed
