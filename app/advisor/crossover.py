"""Where one plan overtakes another as the batch grows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.advisor.recommendation import CrossoverKind

# At this batch: 1 when the second plan is faster with intervals apart, -1 when the first is, 0 when the intervals
# overlap, None when one of the two times is not known.
Compare = Callable[[int], int | None]


@dataclass(frozen=True, slots=True)
class Found:
    """batch_size: the smallest batch from which the second plan is faster at every larger batch looked at, with
    intervals apart. low: the smallest from which the first is no longer faster with intervals apart: the plans'
    medians cross between `low` and `high`, and from `high` on (batch_size itself) it is certain."""

    kind: CrossoverKind
    batch_size: int | None = None
    low: int | None = None
    high: int | None = None


def find_crossover(compare: Compare, batch_sizes: Sequence[int]) -> Found | None:
    """The crossover from the first plan to the second over growing batch sizes; None when no batch can be compared.

    Both are compared at every batch size given, then between the two neighbours where the answer changes, by
    bisection down to one sample. Step times need not be monotone: only what holds up to the largest batch counts.
    """
    signs = {batch: sign for batch in batch_sizes if (sign := compare(batch)) is not None}
    looked_at = sorted(signs)
    if not looked_at:
        return None
    last = signs[looked_at[-1]]
    if last <= 0:
        return Found("never" if last < 0 else "undecided")
    crossing = _last_not(looked_at, lambda batch: signs[batch] > 0)
    if crossing is None:
        return Found("always")
    certain = _bisect(crossing, lambda batch: (compare(batch) or 0) > 0)
    return Found("at", certain, _possible_from(compare, looked_at, signs), certain)


def _possible_from(compare: Compare, looked_at: Sequence[int], signs: dict[int, int]) -> int:
    bracket = _last_not(looked_at, lambda batch: signs[batch] >= 0)
    if bracket is None:
        return looked_at[0]
    return _bisect(bracket, lambda batch: (compare(batch) or 0) >= 0)


def _last_not(looked_at: Sequence[int], holds: Callable[[int], bool]) -> tuple[int, int] | None:
    """The last batch where the condition fails and the one after it; None when it holds everywhere."""
    for before, after in zip(reversed(looked_at[:-1]), reversed(looked_at[1:]), strict=True):
        if not holds(before):
            return before, after
    return None


def _bisect(bracket: tuple[int, int], holds: Callable[[int], bool]) -> int:
    """The smallest batch in the bracket from which the condition holds, if it changes there once."""
    fails, succeeds = bracket
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
