"""How far told crossovers are from true ones.

python -m benchmarks.crossover_scores FILE        the table of a result of benchmarks.crossovers that is there already

Everything is a batch size from which the second plan is the faster one: `always` is 1, `never` is beyond the largest
batch that ran. Truth is a bracket: at `low` the first plan is still faster by more than 3 %, from `high` on the second
is; between them nobody can tell. What was told is within a factor F when it lies between low / F and high * F. Where
the second plan is not ahead at the largest batch that ran, `never` is right as far as anybody looked, a batch below low
/ F is wrong, and of any other nobody knows: it is counted apart. Pairs whose bracket is the whole range, as they are
within 3 % at nearly every batch, have no crossover to find and are left out.

A time is the calm machine's (docs/decisions/0013): of a batch's turns those count in which both plans met calm cores,
where there are as many as LEAST_CALM; runs before 2026-11-30, 21:50 do not say which did, and all of theirs count.

What it costs to follow what was told stands beside it: how much longer the plan takes that is told to be ahead than the
one that is, on average over the batches that ran. Where two plans hardly differ over a wide range, the crossover is
anywhere in it, and a miss costs nothing.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any

Document = dict[str, Any]
Both = tuple[Sequence[float], Sequence[float]]  # what each of two plans took, in its processes
# Two plans within this are the same to anybody.
TIE = 0.03
LEAST_CALM = 2
NARROW = 1.5  # a bracket's width at which bisection may stop
# Adviser -> the factor that is right, and in how many of the pairs (issue: crossover batch against bisected truth).
FACTORS = {"instant": 2.0, "quick": 1.5}
TARGET = 0.95
WORDS = {
    "batch_size": "`batch_size`, the likeliest where it is certain that they cross",
    "medians_cross_at": "`medians_cross_at`, the likeliest in any case",
    "high": "`high`, from which it is certain",
}


@dataclass(frozen=True, slots=True)
class Truth:
    """signs: at each batch that ran, 1 when the second plan is faster, -1 when the first is, 0 for a tie."""

    signs: Mapping[int, int]

    @property
    def low(self) -> float:
        """The largest batch at which the first is still faster; 1 where there is none."""
        return max((size for size, sign in self.signs.items() if sign < 0), default=1)

    @property
    def high(self) -> float:
        """The smallest from which the second is faster at all larger ones that ran; infinite where it is not at the
        largest."""
        behind = [size for size, sign in self.signs.items() if sign <= 0]
        return min((size for size in self.signs if size > max(behind, default=0)), default=math.inf)

    @property
    def is_a_tie(self) -> bool:
        """The bracket is all there is, so that whatever is told would be right."""
        return self.kind == "undecided" and self.low <= min(self.signs, default=1)

    @property
    def contradicted(self) -> list[int]:
        """Batches at which one plan is ahead although the other is both at a smaller one and at a larger one, or
        neither is although the same one is ahead next to it on either side: a plan met slow minutes there, or does take
        longer at that batch."""
        signs = sorted(self.signs.items())
        found = []
        for place, (size, sign) in enumerate(signs):
            before = [other for _, other in signs[:place] if other]
            after = [other for _, other in signs[place + 1 :] if other]
            beside = bool(before and after) and before[-1] == after[0] != sign == 0
            if beside or (sign and -sign in before and -sign in after):
                found.append(size)
        return found

    @property
    def kind(self) -> str:
        sizes = sorted(self.signs)
        if not sizes or self.high == sizes[0]:
            return "always" if sizes else "undecided"
        return "at" if self.high < math.inf else "never" if self.signs[sizes[-1]] < 0 else "undecided"

    def to_json(self) -> Document:
        high = None if math.isinf(self.high) else self.high
        return {"kind": self.kind, "low": self.low, "high": high, "tie": self.is_a_tie}

    def holds(self, batch_size: float, factor: float) -> bool | None:
        """Whether a told batch is within the factor of the bracket; None where no batch that ran can tell."""
        if batch_size < self.low / factor:
            return False
        if math.isinf(self.high):
            return True if math.isinf(batch_size) else None
        return batch_size <= self.high * factor


def truth_of(times: Mapping[int, Both]) -> Truth:
    """times: by batch size, what each plan took in each process. A plan that did not run there has no times, and the
    batch does not count."""
    return Truth({size: sign(gain(*both)) for size, both in times.items() if both[0] and both[1]})


def of_calm(
    first: Sequence[float], second: Sequence[float], calm: tuple[Sequence[bool], Sequence[bool]] | None
) -> Both:
    """Of what two plans took in each process, in turns, the turns in which both met calm cores; all, where these are
    too few. calm: which did; None: nobody knows."""
    kept = [place for place, both in enumerate(zip(*calm, strict=False)) if all(both)] if calm else []
    return ([first[at] for at in kept], [second[at] for at in kept]) if len(kept) >= LEAST_CALM else (first, second)


def gain(first: Sequence[float], second: Sequence[float]) -> float:
    """How much faster the second plan is (a logarithm; negative: slower), from what both took in each process: the
    median of the processes, as one in some is half as fast again or slow."""
    return median(math.log(mine / other) for mine, other in zip(first, second, strict=False))


def sign(faster_by: float) -> int:
    """Of a gain: 1 where the second plan is faster, -1 where the first is, 0 where they are the same to anybody."""
    return 0 if abs(faster_by) <= math.log1p(TIE) else 1 if faster_by > 0 else -1


def wanted(truth: Truth) -> int | None:
    """The batch size to measure next: in the middle (of the logarithms) of the widest gap in which the sign changes
    around the crossover; None when they are all narrow, or when there is no crossover."""
    if truth.kind != "at":
        return None
    sizes = [size for size in sorted(truth.signs) if truth.low <= size <= truth.high]
    gaps = [
        (right / left, left, right)
        for left, right in pairwise(sizes)
        if truth.signs[left] != truth.signs[right] and right > NARROW * left and right - left > 1
    ]
    if not gaps:
        return None
    _, left, right = max(gaps)
    return min(max(round(math.sqrt(left * right)), left + 1), right - 1)


def told_batch(told: Document, figure: str) -> float | None:
    """figure: `batch_size`, the likeliest where it is certain that they cross; `high`, from which it is certain; or
    `medians_cross_at`, the likeliest in any case. None: it cannot tell."""
    if figure in ("batch_size", "high") and told["kind"] != "at":
        return {"always": 1.0, "never": math.inf}.get(told["kind"])
    found = told[figure]
    return math.inf if found is None else float(found)


def torch_default(row: Document) -> float:
    """What torch does if nobody asks: all threads from the first batch on, and never another precision."""
    return 1.0 if row["from"].split(",")[0] == row["to"].split(",")[0] else math.inf


def score(rows: Iterable[Document]) -> list[Document]:
    """One row a figure: of how many pairs it tells something, of how many of these no batch that ran can tell
    (`beyond`), how often it is within its factor, and what following it costs."""
    judged = [row for row in rows if "error" not in row and row["times"] and not row["truth"]["tie"]]
    table: list[Document] = []
    for adviser, factor in FACTORS.items():
        for figure in WORDS:
            told = [(row, told_batch(row[adviser], figure)) for row in judged if row.get(adviser)]
            table.append(_scored(adviser, figure, factor, told))
    baseline = [(row, torch_default(row)) for row in judged]
    return [*table, _scored("torch default", "all threads, fp32", FACTORS["instant"], baseline)]


def _scored(adviser: str, figure: str, factor: float, told: Sequence[tuple[Document, float | None]]) -> Document:
    decided = [(row, batch) for row, batch in told if batch is not None]
    verdicts = [truth_of(_times(row)).holds(batch, factor) for row, batch in decided]
    right = [verdict is True for verdict in verdicts]
    crossing = [hit for (row, _), hit in zip(decided, right, strict=True) if row["truth"]["kind"] == "at"]
    costs = [cost_of_following(batch, _times(row)) for row, batch in decided]
    return {
        "adviser": adviser,
        "figure": figure,
        "factor": factor,
        "pairs": len(told),
        "decided": len(decided),
        "beyond": verdicts.count(None),
        "right": sum(right),
        "crossing": len(crossing),
        "crossing_right": sum(crossing),
        "mean_cost": fmean(costs) if costs else None,
        "worst_cost": max(costs, default=None),
        "target": TARGET,
    }


def cost_of_following(told: float, times: Mapping[int, Both]) -> float:
    """How much longer than the quicker plan the one takes that is told to be ahead (0.1: a tenth), on average over the
    batches at which both ran. told: the batch from which the second is said to be ahead."""
    gains = {size: gain(*both) for size, both in times.items() if both[0] and both[1]}
    return fmean(math.expm1(max(0.0, -by if size >= told else by)) for size, by in gains.items()) if gains else 0.0


def _times(row: Document) -> dict[int, Both]:
    """As they were measured, also after a trip through JSON, whose keys are texts."""
    calm = {int(size): (first, second) for size, (first, second) in row.get("calm", {}).items()}
    return {int(size): of_calm(*both, calm.get(int(size))) for size, both in row["times"].items()}


def describe_scores(table: Sequence[Document]) -> str:
    """The table as Markdown."""
    lines = [
        "| told by | figure | within a factor of | pairs told | of these beyond what ran | right of the others "
        "| right of those that do cross | target | cost on average | at worst |",
        "| --- " * 10 + "|",
    ]
    for row in table:
        judged = row["decided"] - row["beyond"]
        share = f"{row['right'] / judged:.0%}" if judged else "–"
        lines.append(
            f"| {row['adviser']} | {WORDS.get(row['figure'], row['figure'])} | {row['factor']:g} | "
            f"{row['decided']} of {row['pairs']} | {row['beyond']} | {share} ({row['right']} of {judged}) | "
            f"{row['crossing_right']} of {row['crossing']} | {row['target']:.0%} | "
            f"{_percent(row['mean_cost'])} | {_percent(row['worst_cost'])} |"
        )
    return "\n".join(lines)


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"


def main() -> int:
    rows = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["rows"]
    sys.stdout.write(describe_scores(score(rows)) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
