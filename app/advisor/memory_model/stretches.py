"""Which batches a plan has room for: not all up to the largest, as kernels and a heap may take less at a larger one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple


class Stretch(NamedTuple):
    """Of batch sizes, with both of its ends. last: None where it has no end, or none is known."""

    first: int
    last: int | None

    def __str__(self) -> str:
        if self.first == self.last:
            return f"{self.first}"
        return f"{self.first} and more" if self.last is None else f"{self.first} to {self.last}"

    def holds(self, batch_size: int) -> bool:
        return self.first <= batch_size and (self.last is None or batch_size <= self.last)


@dataclass(frozen=True, slots=True)
class Stretches:
    """each: by growing size, with batches between any two that have no room."""

    each: tuple[Stretch, ...] = (Stretch(1, None),)

    def __contains__(self, batch_size: int) -> bool:
        return any(stretch.holds(batch_size) for stretch in self.each)

    @property
    def largest(self) -> int | None:
        """0: there is none; None: no end is known."""
        return self.each[-1].last if self.each else 0

    @property
    def ends(self) -> tuple[int, ...]:
        """The first and the last of each."""
        return tuple(end for stretch in self.each for end in stretch if end is not None)

    def largest_below(self, batch_size: int) -> int:
        """0: there is none."""
        return self.at_most(batch_size - 1).largest or 0

    def next_above(self, batch_size: int) -> Stretch | None:
        return next((stretch for stretch in self.each if stretch.first > batch_size), None)

    def at_most(self, batch_size: int) -> Stretches:
        return Stretches(
            tuple(
                Stretch(first, batch_size if last is None else min(last, batch_size))
                for first, last in self.each
                if first <= batch_size
            )
        )

    def at_least(self, batch_size: int) -> Stretches:
        return Stretches(
            tuple(
                Stretch(max(first, batch_size), last) for first, last in self.each if last is None or last >= batch_size
            )
        )

    def with_each(self, batch_sizes: Iterable[int]) -> Stretches:
        return joined(sorted([*self.each, *(Stretch(size, size) for size in batch_sizes)], key=lambda each: each.first))

    def with_all_up_to(self, batch_size: int) -> Stretches:
        return joined([Stretch(1, batch_size), *self.each])


EVERY = Stretches()


def joined(stretches: Iterable[Stretch]) -> Stretches:
    """Those that overlap, or follow on each other, are one. stretches: by growing first size."""
    found: list[Stretch] = []
    for first, last in stretches:
        before = found[-1] if found else None
        if before is None or (before.last is not None and first > before.last + 1):
            found.append(Stretch(first, last))
        elif before.last is not None:
            found[-1] = Stretch(before.first, None if last is None else max(last, before.last))
    return Stretches(tuple(found))
