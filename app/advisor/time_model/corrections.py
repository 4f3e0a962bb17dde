"""What this machine's measurements of a model under some plans say of its predictions under the others."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from app.advisor.time_model.experience import MOST_LOG_RATIO, Experience
from app.advisor.time_model.measured import carried_share

if TYPE_CHECKING:
    from app.advisor.time_model.step_time import PlanTime

# What one plan's prediction is off by, another's is off by in part: half of it, from one plan to another, was 5 to 8 %
# off in the median of 936 pairs of plans and batch sizes in each of three runs of benchmarks.estimates (Zen 4 and 5),
# where all of it was 4 to 9, nothing 8 to 9, and where it was off by more than a third, all of it missed by up to twice
# as much as half. As if one more plan had shown that its prediction is right.
DOUBT = 1.0


@dataclass(frozen=True, slots=True)
class Correction:
    """What this machine's measurements of the same model under other plans say the prediction is off by. log_ratio: the
    logarithm of measured over predicted, at these batch sizes; 0 when nothing was measured."""

    log_ratio: float = 0.0
    batch_sizes: frozenset[int] = frozenset()

    def at(self, batch_size: int) -> float:
        """Less of it the further away, as of the measured plans themselves: else they would cross by that alone."""
        return self.log_ratio * max((carried_share(batch_size, size) for size in self.batch_sizes), default=1.0)


NONE = Correction()


def correct(times: Sequence[PlanTime], kinds: Mapping[str, Hashable], experience: Experience | None) -> None:
    """By what was measured here of this very model, else by what like ones taught."""
    corrections = _corrections(times, kinds)
    for time in times:
        kind = kinds.get(time.plan.device, time.plan.device)
        time.correction = corrections.get(kind, NONE)
        time.experience = None if kind in corrections else experience


def _corrections(times: Sequence[PlanTime], kinds: Mapping[str, Hashable]) -> dict[Hashable, Correction]:
    """The logarithm of measured over predicted, the median over the measured plans of a kind of device, and less of it
    where these are few: the model's share of the error."""
    ratios: dict[Hashable, list[float]] = {}
    sizes: dict[Hashable, set[int]] = {}
    for time in times:
        if time.measured is None or time.predicted is None:
            continue
        kind, mine = kinds.get(time.plan.device, time.plan.device), []
        for batch in time.measured.own_batch_sizes:  # what one of several alike cards took counts once
            row = time.measured.rows[batch]
            if row.met_others or row.is_unsteady or (time.crowd is not None and time.crowd.tells_of_others(row)):
                continue  # it tells of others, who have left, or may at any time
            measured = time.measured.measured(batch)
            predicted = time.predicted.at(batch, time.measured.data)
            if measured is not None and predicted is not None:
                mine.append(math.log(measured.median / predicted.median))
                sizes.setdefault(kind, set()).add(batch)
        if mine:
            ratios.setdefault(kind, []).append(median(mine))
    return {kind: Correction(_taught_by(found), frozenset(sizes[kind])) for kind, found in ratios.items()}


def _taught_by(ratios: Sequence[float]) -> float:
    """What another plan is off by, where these are off by so much: logarithms."""
    middle = max(-MOST_LOG_RATIO, min(median(ratios), MOST_LOG_RATIO))
    return middle * len(ratios) / (len(ratios) + DOUBT)
