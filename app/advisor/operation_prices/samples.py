"""What operations that are alike took beyond their baselines, as a smooth function of where they ran."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from app.advisor.numerics import NDArray, np

# A Gaussian process (Rasmussen and Williams, 2006, "Gaussian Processes for Machine Learning", chapters 2 and 4): the
# logarithms vary by as much about a level that is known as little, smoothly over so many e-folds of each coordinate
# (Matern's covariance, three halves), and each was timed to a tenth. Chosen by calibrations of two processors, each
# network left out in turn, and by no model of a benchmark (docs/decisions/0015).
LEVEL, VARIATION, TIMED_TO = 1.0, 1.0, 0.1
SMOOTH_OVER = 12.0
# By so much more than the samples themselves reach nothing is told: it would be three deviations, by what is taken to
# be known of how they vary. Of samples that no clock can have told, a slope would lead on without end.
MOST_BEYOND = 3.0 * VARIATION
# Of so many rows a loop is no slower than numpy, which takes as long for one as for twenty (0.3 us each against 7 on
# an EPYC, Zen 4). Most names have two.
FEW_ROWS = 24
# A system of so many equations is solved in a hundredth of a second. Of a kind of operation there are more, and so many
# of them do, evenly spread.
MOST_ROWS = 600

_A_UNIT = math.sqrt(3.0) / SMOOTH_OVER  # of distance, in Matern's

Numbers = NDArray[np.float64]
_EACH = np.ones(5)  # coordinate: a product sums few squares twice as quickly as einsum
Place = tuple[float, float, float, float, float]  # size, intensity, written, footprint, often


class Sample(NamedTuple):
    """log_ratio: of seconds over the baseline. intensity: logarithm of flops a byte, of flops a block where a kernel
    works through blocks, of the numbers in a pool's window; 0 for other light operations. written: see written_of.
    footprint, often: see surroundings. log_seconds: of all that it took; 0 where nobody asks."""

    network: str
    size: float
    intensity: float
    written: float
    footprint: float
    often: float
    log_ratio: float
    log_seconds: float = 0.0


class Samples:
    """Of operations that are alike. smallest, largest: size among them."""

    def __init__(self, rows: Sequence[Sample] = ()) -> None:
        self.rows = list(rows)
        self._solved: _Solved | None = None
        self._known: _Known | None = None
        self._is_fitted = False
        self._of_all: tuple[Samples, str] | None = None  # whose equations are solved already, and the network left out
        sizes, ratios = [row.size for row in self.rows], [row.log_ratio for row in self.rows]
        self.smallest, self.largest = min(sizes, default=math.inf), max(sizes, default=-math.inf)
        self._least, self._most = min(ratios, default=math.inf), max(ratios, default=-math.inf)

    def add(self, row: Sample) -> None:
        self.rows.append(row)
        self._solved = self._known = self._of_all = None
        self.smallest, self.largest = min(self.smallest, row.size), max(self.largest, row.size)
        self._least, self._most = min(self._least, row.log_ratio), max(self._most, row.log_ratio)

    def without(self, network: str) -> Samples:
        """As if this network had never been timed."""
        others = Samples([row for row in self.rows if row.network != network])
        others._of_all = self, network
        return others

    def finish_fitting(self) -> None:
        """No more network is left out: let go of what only that takes, which grows with the square of the rows."""
        if self._solved is not None:
            self._known = self._solved.known
        self._solved, self._is_fitted = None, True

    def get_ready(self) -> None:
        """Solve the equations now, which the first question would wait for."""
        if self.rows and self._known is None:
            self._known = self._know()

    def log_ratio_at(self, place: Place) -> float:
        """What is likeliest there, within MOST_BEYOND of the rows; of at least one row."""
        if self._known is None:
            self._known = self._know()
        told = self._known.told_at(place)
        return min(max(told, self._least - MOST_BEYOND), self._most + MOST_BEYOND)

    def _know(self) -> _Known:
        if self._of_all is not None:
            everything, network = self._of_all
            known = everything._solve().without(network)
            if known is not None:
                return known
        return _known(self._some_rows()) if self._is_fitted else self._solve().known

    def _solve(self) -> _Solved:
        if self._solved is not None:
            return self._solved
        solved = _solved(self._some_rows())
        if not self._is_fitted:
            self._solved = solved
        return solved

    def _some_rows(self) -> list[Sample]:
        count = min(len(self.rows), MOST_ROWS)
        return [self.rows[place * len(self.rows) // count] for place in range(count)]


class _Known(NamedTuple):
    """places: of rows, by coordinates. weights: what each row's covariance with a place counts there. few: the same,
    each row's place and its weight, where that is quicker; else empty."""

    places: Numbers
    weights: Numbers
    few: Sequence[Sequence[float]] = ()

    def told_at(self, place: Place) -> float:
        """The rows' covariances with this place, each by its weight."""
        if not self.few:
            apart = self.places - np.array(place)
            return float(_covariance((apart * apart) @ _EACH) @ self.weights)
        size, intensity, written, footprint, often = place
        told = 0.0
        for row_size, row_intensity, row_written, row_footprint, row_often, weight in self.few:
            a, b, c = row_size - size, row_intensity - intensity, row_written - written
            d, e = row_footprint - footprint, row_often - often
            apart = _A_UNIT * math.sqrt(a * a + b * b + c * c + d * d + e * e)
            told += weight * (LEVEL**2 + VARIATION**2 * (1.0 + apart) * math.exp(-apart))
        return told


class _Solved(NamedTuple):
    """inverse: of the rows' covariance."""

    networks: tuple[str, ...]
    known: _Known
    inverse: Numbers

    def without(self, network: str) -> _Known | None:
        """What solving the others' rows alone would give, by the inverse of a part of a partitioned matrix; None where
        none is left."""
        out = np.array([each == network for each in self.networks])
        if not out.any():
            return self.known
        if out.all():
            return None
        across = self.inverse[np.ix_(~out, out)]
        taken = np.linalg.solve(self.inverse[np.ix_(out, out)], self.known.weights[out])
        return _known_by(self.known.places[~out], self.known.weights[~out] - across @ taken)


def _known_by(places: Numbers, weights: Numbers) -> _Known:
    few = np.column_stack((places, weights)).tolist() if len(weights) <= FEW_ROWS else ()
    return _Known(places, weights, few)


def _known(rows: Sequence[Sample]) -> _Known:
    """Without the inverse, which takes three times as long."""
    places, covariance = _equations(rows)
    return _known_by(places, np.linalg.solve(covariance, np.array([row.log_ratio for row in rows])))


def _solved(rows: Sequence[Sample]) -> _Solved:
    places, covariance = _equations(rows)
    inverse = np.linalg.inv(covariance).astype(np.float64, copy=False)
    weights = inverse @ np.array([row.log_ratio for row in rows])
    return _Solved(tuple(row.network for row in rows), _known_by(places, weights), inverse)


def _equations(rows: Sequence[Sample]) -> tuple[Numbers, Numbers]:
    """The rows' places, and their covariance as they were timed."""
    places = np.array([row[1:6] for row in rows])
    apart = places[:, None, :] - places[None, :, :]
    covariance = _covariance(np.einsum("...i,...i->...", apart, apart))
    covariance[np.diag_indices(len(rows))] += TIMED_TO**2
    return places, covariance


def _covariance(squares: Numbers) -> Numbers:
    """Of two places each. squares: of their distance, which are overwritten: room for all rows' is slow to get."""
    squares *= 3.0
    distance = np.sqrt(squares, out=squares)
    distance /= SMOOTH_OVER
    covariance = np.exp(-distance)
    distance += 1.0
    covariance *= distance
    covariance *= VARIATION**2
    covariance += LEVEL**2
    return covariance
