"""Fisher's iris data as the experiment uses it: 120 rows to train on, 30 held out, features scaled to 0-1.

The rows stand in `iris.csv` beside this file; its first lines say where they come from.
"""

from __future__ import annotations

import csv
import random
from collections import defaultdict
from dataclasses import dataclass
from importlib.resources import files

SPECIES = ("setosa", "versicolor", "virginica")
HELD_OUT_PER_SPECIES = 10  # 30 of 150: a fifth of each species
SHUFFLE_SEED = 20261121  # any fixed number: the same rows are held out on every machine

Row = tuple[tuple[float, ...], int]  # four features in centimetres, index into SPECIES


@dataclass(frozen=True, slots=True)
class IrisSplit:
    """Features are scaled by the training rows' smallest and largest values; held-out ones may leave 0-1 a little."""

    training: tuple[Row, ...]
    held_out: tuple[Row, ...]


def read_iris() -> tuple[Row, ...]:
    """All 150 rows, in the file's order."""
    text = files("probes.microtrain.iris_experiment").joinpath("iris.csv").read_text(encoding="utf-8")
    return parse_iris(text)


def parse_iris(text: str) -> tuple[Row, ...]:
    """CSV with a header, four features and a species a row; lines that begin with `#` are remarks."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return tuple(
        (tuple(float(value) for value in row[:4]), SPECIES.index(row[4])) for row in list(csv.reader(lines))[1:]
    )


def split_iris(rows: tuple[Row, ...]) -> IrisSplit:
    """Hold out ten rows of each species by a shuffle with a fixed seed, then scale."""
    by_species: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        by_species[row[1]].append(row)
    shuffle = random.Random(SHUFFLE_SEED)
    training: list[Row] = []
    held_out: list[Row] = []
    for species in sorted(by_species):
        members = by_species[species]
        shuffle.shuffle(members)
        held_out += members[:HELD_OUT_PER_SPECIES]
        training += members[HELD_OUT_PER_SPECIES:]
    return scale_split(IrisSplit(tuple(training), tuple(held_out)))


def scale_split(split: IrisSplit) -> IrisSplit:
    """Map each feature's smallest training value to 0 and its largest to 1."""
    columns = list(zip(*(features for features, _ in split.training), strict=True))
    lows = [min(column) for column in columns]
    spans = [max(column) - min(column) for column in columns]

    def scaled(row: Row) -> Row:
        return tuple((value - low) / span for value, low, span in zip(row[0], lows, spans, strict=True)), row[1]

    return IrisSplit(tuple(map(scaled, split.training)), tuple(map(scaled, split.held_out)))
