"""Where one plan overtakes another as the batch grows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from app.advisor.recommendation import CrossoverKind

# At this batch: 1 when the second plan is faster with intervals apart, -1 when the first is, 0 when the intervals
# overlap, None when one of the two times is not known.
Compare = Callable[[int], int | None]


@dataclass(frozen=True, slots=True)
class Found:
    """high: the smallest batch from which the second plan is faster at every larger batch looked at, with intervals
    apart. low: the smallest from which the first is no longer faster with intervals apart. The plans' medians cross
    between the two."""

    kind: CrossoverKind
    low: int | None = None
    high: int | None = None


def find_crossover(compare: Compare, batch_sizes: Sequence[int]) -> Found | None:
    """The crossover from the first plan to the second over growing batch sizes; None when no two can be compared: one
    batch says nothing of what a larger one changes.

    Both are compared at every batch size given, then between the two neighbours where the answer changes, by
    bisection down to one sample. Step times need not be monotone: only what holds up to the largest batch counts, at
    every batch looked at, those of the bisection included.
    """
    signs = {batch: sign for batch in batch_sizes if (sign := compare(batch)) is not None}
    if len(signs) < 2:
        return None
    last = signs[max(signs)]
    if last <= 0:
        return Found("never" if last < 0 else "undecided")

    def sign_at(batch: int) -> int:
        if batch not in signs:
            signs[batch] = compare(batch) or 0
        return signs[batch]

    certain = holds_from(lambda batch: sign_at(batch) > 0, signs)
    if certain == min(signs):
        return Found("always")
    return Found("at", holds_from(lambda batch: sign_at(batch) >= 0, signs), certain)


def holds_from(holds: Callable[[int], bool], looked_at: Iterable[int]) -> int | None:
    """The smallest batch from which the condition holds at every larger one looked at, found by bisection between the
    last of these where it fails and the next; None when it fails at the largest."""
    sizes = sorted(looked_at)
    failing = next((place for place in reversed(range(len(sizes))) if not holds(sizes[place])), None)
    if failing is None:
        return sizes[0] if sizes else None
    return None if failing == len(sizes) - 1 else _bisect(sizes[failing], sizes[failing + 1], holds)


def _bisect(fails: int, succeeds: int, holds: Callable[[int], bool]) -> int:
    """The smallest batch between the two from which the condition holds, if it changes there once."""
    while succeeds - fails > 1:
        middle = (fails + succeeds) // 2
        if holds(middle):
            succeeds = middle
        else:
            fails = middle
    return succeeds


def batch_grid(largest: int, also: Sequence[int] = ()) -> tuple[int, ...]:
    """1, 2, 4, … up to `largest`, with the batch sizes of `also` that lie within."""
    sizes = {largest, *(batch for batch in also if 1 <= batch <= largest)}
    size = 1
    while size < largest:
        sizes.add(size)
        size *= 2
    return tuple(sorted(sizes))
