"""What may be known of the numbers in a tensor that has none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

COUNTS = "known_counts"  # attribute of token ids: how often each of these stands in every sample
FILLED = "filled_with"  # attribute of an input: the number that all its entries are


class Filled(NamedTuple):
    """Every entry is this number. Of numbers that are not whole, only infinite ones are kept."""

    value: float


@dataclass(frozen=True)
class Granted:
    """Every entry is this truth, as far as one answer for all of them goes: no number is infinite, or none. Which rows
    they choose nobody knows."""

    truth: bool


class Ones(NamedTuple):
    """So many of so many entries are 1 (true), the others 0. even: an assumption; experts are chosen equally often."""

    hits: int
    of: int
    even: bool = False

    def among(self, entries: int) -> int:
        return round(self.hits * entries / self.of)

    def inverse(self) -> Ones:
        return self._replace(hits=self.of - self.hits)


class Spread(NamedTuple):
    """Whole numbers that add up to a total, as even as may be: so many tokens for each expert."""

    total: int
    places: int
    even: bool = True

    def at(self, place: int) -> int:
        return self.total * (place + 1) // self.places - self.total * place // self.places


class Rising(NamedTuple):
    """0, 1, 2 and so on, in order of storage: a range, the places of a mask that is true everywhere."""

    def at(self, place: int) -> int:
        return place


class Triangle(NamedTuple):
    """On a diagonal and above it (upper) or below, every entry is this infinite number, and 0 elsewhere: what a causal
    mask is. Of a whole tensor, not of its parts."""

    value: float
    upper: bool
    diagonal: int


@dataclass(frozen=True)
class Drawn:
    """One number from 0 to 1, all equally likely."""


@dataclass(frozen=True)
class Chance:
    """One truth, so likely to be true."""

    of_truth: float


Fact = Filled | Granted | Ones | Spread | Rising | Triangle | Drawn | Chance
