"""What is known of one plan's step at one batch, and whether two plans can be told apart by it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from app.advisor.recommendation import Basis, Interval
from app.advisor.time_model.fitting import Step, ratio_spread
from app.advisor.time_model.intervals import apart

# What was measured within so many seconds met the same machine: a question takes up to a minute.
ONE_TIME_SECONDS = 600.0

Errors = Mapping[Step, float]  # of networks left out (ratio_spread)
RatioSpread = Callable[[Errors, Errors], float | None]

# Best known first.
BASES: tuple[Basis, ...] = ("measured", "probed", "predicted", "assumed")


class StepEstimate(NamedTuple):
    """left_out: where it is a prediction, or was carried along one, the errors that its model made on networks left out
    (see ratio_spread). slowed: how many times as long others, who hold cores that this plan needs, may make it at
    worst; 1 where none do, or where it was measured meanwhile and nobody could tell the blocks that they slowed; below
    1 where who held them then has left, or was seen by its samples alone, and it may take that much less. met: what
    they do to it is no guess, but what they did while it was measured. within: of a measurement, the spread that it
    does not share with other plans of that run; None of a plain prediction. carried: what carrying it to this batch
    along the prediction adds to that. measured_at: seconds since 1970, where it is known. between: the spread of what
    processes take for the same step, which plans that ran at one time on devices of a kind share: a CPU's heap and a
    card's queue have nothing in common. on_cpu: it ran there. between_cards: what the plan's own card may differ by
    from the one that is like it, on which this ran. by_one_step: it rests on a step that others may have
    been in the way of, the only one, and too short to tell what they do to steps: what it suffers is alike to
    nothing."""

    seconds: Interval
    basis: Basis
    left_out: Errors | None = None
    slowed: float = 1.0
    met: bool = False
    within: float | None = None
    carried: float = 0.0
    measured_at: float | None = None
    between: float = 0.0
    on_cpu: bool = True
    between_cards: float = 0.0
    by_one_step: bool = False

    @property
    def crowded(self) -> bool:
        """Others may make it take far longer than its median says."""
        return self.slowed > 1 and not self.met

    @property
    def rests_on_prediction(self) -> bool:
        """It is a prediction, or was carried to this batch along one: else real steps told it, at this batch or on
        either side of it."""
        return self.carried > 0 or self.basis not in ("measured", "probed")

    @property
    def relieved(self) -> bool:
        """What it rests on was taken while others held cores, who have left as far as anybody sees: its median is a
        guess between extremes."""
        return self.slowed < 1


def shared_spread(first: StepEstimate, second: StepEstimate, spread: RatioSpread = ratio_spread) -> float | None:
    """The spread of the ratio of two predictions of one profile, or of two measurements, as they err together; None
    of anything else, and where others slow one plan more than the other. What was carried to another batch along two
    predictions is known no worse than these. spread: ratio_spread, or one that remembers what it told."""
    if not math.isclose(first.slowed, second.slowed) or (first.within is None) != (second.within is None):
        return None
    ours, theirs = first.left_out, second.left_out
    predicted = None if ours is None or theirs is None else spread(ours, theirs)
    if first.within is None or second.within is None:
        return predicted
    carried = math.hypot(first.carried, second.carried)
    together = first.on_cpu == second.on_cpu and at_one_time(first.measured_at, second.measured_at)
    between = 0.0 if together else math.hypot(first.between, second.between)
    cards = 0.0 if first.between_cards and second.between_cards else max(first.between_cards, second.between_cards)
    least = carried if predicted is None else min(carried, predicted)
    return math.hypot(first.within, second.within, between, cards, least)


def remembered_ratio_spread() -> RatioSpread:
    """ratio_spread of two plans that are compared at many batches: what they err by is the same at each."""
    found: dict[tuple[int, int], tuple[Errors, Errors, float | None]] = {}  # with what they are of: ids stay taken

    def spread(one: Errors, other: Errors) -> float | None:
        key = (id(one), id(other))
        if key not in found:
            found[key] = one, other, ratio_spread(one, other)
        return found[key][2]

    return spread


def at_one_time(one: float | None, other: float | None) -> bool:
    """Of two measurements, by seconds since 1970. So it is taken to be where nobody noted when."""
    return one is None or other is None or abs(one - other) < ONE_TIME_SECONDS


def compare(first: StepEstimate | None, second: StepEstimate | None, spread: RatioSpread = ratio_spread) -> int | None:
    """1 when the second is faster with intervals apart, -1 when the first is, 0 when they overlap, None: unknown.

    Two predictions are told apart by the interval of their ratio. spread: as of shared_spread.
    """
    if first is None or second is None:
        return None
    shared = shared_spread(first, second, spread)
    if shared is not None:
        gain = math.log(first.seconds.median) - math.log(second.seconds.median)
        return 0 if abs(gain) <= shared else 1 if gain > 0 else -1
    ours, theirs = first.seconds, second.seconds
    return 1 if apart(theirs, ours) else -1 if apart(ours, theirs) else 0


def weakest(bases: Iterable[Basis]) -> Basis:
    """The least founded of these; `assumed` of none."""
    return max(bases, key=BASES.index, default="assumed")
