"""Turns that plans take in one process: their order, what leads in to them, and whether the cores were calm."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from probes.microtrain.quiet.calm import Calm
from probes.microtrain.quiet.pace import read_pace

T = TypeVar("T")

# After another plan's turn a small step takes a third longer, the next a tenth, the fifth no more than any.
LEAD_IN_SECONDS = 0.005
LONG_SECONDS = 0.02  # one such step does for what others need two for


class Turn(Protocol):
    @property
    def was_calm(self) -> bool:
        """In one turn at least."""


SomeTurn = TypeVar("SomeTurn", bound=Turn)


def in_turn(turns: Sequence[T], plans: int) -> list[T]:
    """The smallest batch first, then the other sizes as chance has it, and the plans of each: what the time does not do
    for in one calibration, another has, and a profile is the mean of several. turns: size by size, of so many plans
    each, which stay together behind the first, by which others are judged (plan_shares)."""
    sizes = [list(turns[start : start + plans]) for start in range(0, len(turns), plans)]
    others = sizes[1:]
    random.shuffle(others)
    for size in others:
        size[1:] = random.sample(size[1:], len(size) - 1)
    return [turn for size in (*sizes[:1], *others) for turn in size]


def without_calm(turns: Sequence[SomeTurn]) -> list[SomeTurn]:
    """By chance, those that had no turn on calm cores. The others leave their time to networks that come later, most of
    whose large batches would have none."""
    left = [turn for turn in turns if not turn.was_calm]
    return random.sample(left, len(left))


def read_before(calm: Calm | None, step_seconds: float) -> tuple[float, ...]:
    """Of a long step, within which cores may turn slow or calm. Between short ones it would leave caches that are none
    of a long run's."""
    return (read_pace(),) if calm is not None and step_seconds >= LONG_SECONDS else ()


def read_after(calm: Calm | None, before: tuple[float, ...] = ()) -> float | None:
    return None if calm is None else calm.learn((*before, read_pace()))


def repeat(action: Callable[[], object], seconds: float, least: int = 1) -> int:
    """As often as that at least (once, where it takes long), and again as long as there is time; how often that was."""
    begun = time.perf_counter()
    done, spent = 0, 0.0
    while spent < seconds or (done < least and spent < LONG_SECONDS):
        action()
        done += 1
        spent = time.perf_counter() - begun
    return done
