"""What is remembered of a smooth function between questions: its values at the places of a grid."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from app.advisor.operation_prices.samples import Place

GRID = 4  # places an e-fold
# Of each plan and mode, at some 350 bytes. A question leaves a hundred (73 of a benchmark 7,600 of one plan), and other
# models' are of little use to it, as its operations run in a step of another size: without a bound a service would hold
# on to all that it was ever asked about.
MOST_REMEMBERED = 5_000


class Remembered:
    """Of each key a function of its own; with MOST_REMEMBERED values all are forgotten, which changes none."""

    def __init__(self) -> None:
        self._found: dict[Hashable, float] = {}

    def __len__(self) -> int:
        return len(self._found)

    def at(self, key: Hashable, place: Place, function: Callable[[Place], float]) -> float:
        """The function's value at the place of the grid that is nearest."""
        a, b, c, d, e = place
        node = (round(a * GRID), round(b * GRID), round(c * GRID), round(d * GRID), round(e * GRID))
        found = self._found.get((key, node))
        if found is None:
            if len(self._found) >= MOST_REMEMBERED:
                self._found.clear()
            a, b, c, d, e = node
            found = self._found[key, node] = function((a / GRID, b / GRID, c / GRID, d / GRID, e / GRID))
        return found
