"""Which option is best, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Container, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from app.advisor.like_cards import on_its_kind
from app.advisor.recommendation import Interval, Option
from app.advisor.starts import Starts
from app.advisor.time_model.intervals import Z, deviation
from app.advisor.time_model.step_estimate import BASES
from probes.workload.description import PRECISIONS, Plan

# Confidence is the probability that no other option is faster by more than 5 %.
TOLERANCE = 0.05
# A cheaper plan is worth this much at most. Where a busy machine makes intervals wide, a plan whose median is further
# off overlaps as well; naming it would turn noise into a loss (docs/decisions/0004-too-close-to-call.md).
WORTH_OF_CHEAPNESS = 1.03
# Standard deviations either way, and steps, of the quadrature: the tails left out hold 1e-6.
TAIL, NODES = 5.0, 201


@dataclass(frozen=True, slots=True)
class Ranking:
    """Options, best first. close: the ones that cannot be told from the fastest one, when there are any such beside
    it; the cheapest of them is the head, of several such the quickest. unlike: without those that are one plan on
    another card that is alike. confidence: None when a plan that may fit has no time. late: what is no option, as the
    run is over before it repays its start. unrepaid: plans on a device of which the same is so, by their keys; they
    stay options, and none is the head. compiled: when those that have to be compiled repay that, the late ones among
    them, by their keys. near: the runner-up, where the times of the two overlap, however far apart their
    medians are."""

    options: tuple[Option, ...]
    close: tuple[Option, ...]
    unlike: tuple[Option, ...]
    confidence: float | None
    late: tuple[Option, ...] = ()
    unrepaid: Starts = field(default_factory=dict)
    compiled: Starts = field(default_factory=dict)
    near: Option | None = None

    @property
    def best(self) -> Option | None:
        """The head, if it can be recommended: it has a time, is not known to be too big, and no device may be quicker
        of which only copies are not known."""
        return self.first if self.untold is None else None

    @property
    def first(self) -> Option | None:
        """The quickest of those that have a time, or the cheapest of its close ones."""
        head = self.options[0] if self.options else None
        return head if head is not None and head.step_seconds is not None and head.fits is not False else None

    @property
    def untold(self) -> Option | None:
        """The quickest plan of the devices none of whose plans has a time, as no copies to them were calibrated, where
        it takes less without copies than the first does: what they add may be little or much."""
        if self.first is None or self.first.judged_seconds is None:
            return None
        told = {option.plan.device for option in self.unlike if option.step_seconds is not None}
        lacking = (option for option in self.unlike if option.plan.device not in told)
        without = [(option.uncopied_seconds, option) for option in lacking if option.uncopied_seconds is not None]
        least, quickest = min(without, key=lambda both: both[0], default=(math.inf, None))
        return quickest if least < self.first.judged_seconds else None

    @property
    def passed_over(self) -> Option | None:
        """Of the unrepaid ones, the quickest whose steps are shorter than the head's, in a run that is long enough."""
        if self.best is None or self.best.judged_seconds is None:
            return None
        quicker = (o for o in self.unlike if o.judged_seconds is not None and self.unrepaid.get(o.plan.key) is not None)
        option = min(quicker, key=lambda o: o.judged_seconds or 0.0, default=None)
        return option if option is not None and (option.judged_seconds or 0.0) < self.best.judged_seconds else None

    @property
    def repaid(self) -> tuple[Option, ...]:
        """All but the unrepaid ones."""
        return tuple(option for option in self.options if option.plan.key not in self.unrepaid)

    @property
    def as_cheap(self) -> tuple[Option, ...]:
        """Of the close ones those that take no more than the head, and are not it: it is the quickest of them."""
        if not self.close:
            return ()
        head = self.options[0]
        least = cost_order(head.plan)
        return tuple(option for option in self.close if option is not head and cost_order(option.plan) == least)


# Sort key of what a plan costs (cost_order).
Cost = tuple[bool, bool, int, int, int]

# The spread of the ratio of two options' times where it is known better than either; None where it is not.
RatioSpread = Callable[[Option, Option], float | None]


def rank_options(
    options: Sequence[Option],
    ratio_spread: RatioSpread = lambda one, other: None,
    kinds: Mapping[str, Hashable] = MappingProxyType({}),
    shared: Collection[tuple[object, ...]] = (),
    unrepaid: Starts = MappingProxyType({}),
    sick: Container[str] = (),
) -> Ranking:
    """By median time among those that fit; then those without a time; then those that do not fit.

    A crowded plan is judged by its high end: what suffers least is preferred, unless the other is faster at its worst;
    so is one that rests on one step beside others, who may have left.
    Where intervals overlap the first one's, and medians (of crowded plans high ends, too) are near its, the cheapest
    plan of these goes to the head: what cannot be told apart is decided by what it costs. kinds: by device, of cards
    that are alike; one plan on two of these is no choice between two plans, and the best founded time of it counts: no
    twin comes before that. shared: the keys of plans whose card others use now, or did when it was measured; what they
    do to a time says nothing of a twin.
    sick: devices of which something grave is found; none comes before a twin that is well and holds the batch, too.
    unrepaid: plans that take longer than another one in a run as short as this, whatever a step takes: the head is the
    first that is none of them, and how sure that is is told without them.
    """
    founded = _best_founded(options, kinds, shared, sick)
    first_of = {option.plan.key: founded[on_its_kind(option.plan, kinds)] for option in options}

    def place(option: Option) -> tuple[tuple[int, float, Cost, str], bool]:
        first = first_of[option.plan.key]
        return (max(_order(option), _order(first)), option is not first)

    ordered = sorted(options, key=place)
    rivals = [option for option in ordered if option is first_of[option.plan.key] and option.plan.key not in unrepaid]
    timed = [option for option in rivals if _has_time(option)]
    close = [option for option in timed if _overlap(timed[0], option, ratio_spread)]
    close = close if len(close) > 1 else []
    if rivals:
        head = min(close, key=lambda option: cost_order(option.plan)) if close else rivals[0]
        ordered.remove(head)
        ordered.insert(0, head)
    unlike = [option for option in ordered if option is first_of[option.plan.key]]
    repaid = [option for option in unlike if option.plan.key not in unrepaid]
    confidence = _confidence(repaid, ratio_spread)
    second = next((option for option in repaid[1:] if _has_time(option)), None)
    near = second if second is not None and _cannot_be_told(repaid[0], second, ratio_spread) else None
    return Ranking(tuple(ordered), tuple(close), tuple(unlike), confidence, unrepaid=unrepaid, near=near)


def _best_founded(
    options: Sequence[Option],
    kinds: Mapping[str, Hashable],
    shared: Collection[tuple[object, ...]],
    sick: Container[str],
) -> dict[Hashable, Option]:
    """Of one plan on cards that are alike the one that fits, else holds most, is on a card that is well, has it to
    itself, and is best known."""

    def standing(option: Option) -> tuple[bool, int, bool, bool, bool, int]:
        holds = (option.max_batch_size or 0) if option.fits is False else 0
        basis = len(BASES) if option.basis is None else BASES.index(option.basis)
        is_sick, is_shared = option.plan.device in sick, option.plan.key in shared
        return (option.fits is False, -holds, option.step_seconds is None, is_sick, is_shared, basis)

    found: dict[Hashable, Option] = {}
    for option in sorted(options, key=_order):
        alike = on_its_kind(option.plan, kinds)
        best = found.setdefault(alike, option)
        if standing(option) < standing(best):
            found[alike] = option
    return found


def cost_order(plan: Plan) -> Cost:
    """Sort key, the cheaper plan first: nothing to compile before the first step, CPU before GPU, fewer threads, fp32
    before lower precisions, no settings. An environment is one setting, however many variables it takes. Which of two
    cards costs less is not known."""
    return (
        plan.compiled,
        not plan.is_cpu,
        plan.threads or 0,
        PRECISIONS.index(plan.precision),
        bool(plan.environment) + len(plan.changes),
    )


def _order(option: Option) -> tuple[int, float, Cost, str]:
    seconds, cost = option.judged_seconds, cost_order(option.plan)
    if seconds is None:
        return (2 if option.fits is False else 1, 0.0, cost, option.plan.device)
    return (0, seconds, cost, option.plan.device)


def _has_time(option: Option) -> bool:
    return option.fits is not False and option.step_seconds is not None


def _overlap(fastest: Option, other: Option, ratio_spread: RatioSpread) -> bool:
    """Whether the two cannot be told apart: by the interval of their ratio where it is known, else by their own."""
    ours, theirs = fastest.step_seconds, other.step_seconds
    if other.is_judged_by_high != fastest.is_judged_by_high or ours is None or theirs is None:
        return False  # judged by its worst, a crowded one is told apart
    ratio = max(theirs.median / ours.median, ours.median / theirs.median)  # of crowded ones the first's may be longer
    at_worst = theirs.high / ours.high if other.is_judged_by_high else 1.0
    return max(ratio, at_worst) <= WORTH_OF_CHEAPNESS and _cannot_be_told(fastest, other, ratio_spread)


def _cannot_be_told(one: Option, other: Option, ratio_spread: RatioSpread) -> bool:
    """Which of the two is the quicker."""
    ours, theirs, spread = one.step_seconds, other.step_seconds, ratio_spread(one, other)
    if ours is None or theirs is None:
        return False
    if spread is None:
        return max(ours.low, theirs.low) <= min(ours.high, theirs.high)
    return abs(math.log(theirs.median / ours.median)) <= spread


def _confidence(ordered: Sequence[Option], ratio_spread: RatioSpread) -> float | None:
    """Probability that no other option is faster than the head by more than the tolerance: of each by the ratio of the
    two times where that is known, else by the times. As they share the head's, that all hold is no less likely than
    their product."""
    possible = [option for option in ordered if option.fits is not False and not option.cannot_run]
    if not possible or possible[0].step_seconds is None:
        return None
    head, chance = possible[0].step_seconds, 1.0
    by_own_times: list[Interval] = []
    for other in possible[1:]:
        if other.step_seconds is None:
            return None
        spread = ratio_spread(possible[0], other)
        if spread is None:
            by_own_times.append(other.step_seconds)
        else:
            chance *= _not_faster(head, other.step_seconds, spread)
    return round(chance * probability_of_best(head, by_own_times), 3)


def _not_faster(head: Interval, other: Interval, spread: float, tolerance: float = TOLERANCE) -> float:
    """P(other is not faster than (1 - tolerance) * head), from their ratio alone."""
    distance = math.log(other.median / head.median) - math.log(1 - tolerance)
    return 0.5 * math.erfc(-distance / (spread / Z * math.sqrt(2)))


def probability_of_best(head: Interval, others: Sequence[Interval], tolerance: float = TOLERANCE) -> float:
    """P(no other is faster than (1 - tolerance) * head), each time lognormal and independent.

    One-dimensional quadrature over the head's time: of normal densities with Simpson's rule.
    """
    spread, theirs = deviation(head), [(math.log(other.median), deviation(other)) for other in others]
    if spread < 1e-9:
        return math.prod(_slower(math.log(head.median * (1 - tolerance)), *other) for other in theirs)
    total = weights = 0.0
    for node in range(NODES):
        z = TAIL * (2 * node / (NODES - 1) - 1)
        weight = (1 if node in (0, NODES - 1) else 4 if node % 2 else 2) * math.exp(-z * z / 2)
        threshold = math.log(head.median * (1 - tolerance)) + spread * z
        total += weight * math.prod([_slower(threshold, *other) for other in theirs])
        weights += weight
    return total / weights


def _slower(threshold: float, middle: float, spread: float) -> float:
    """P(a normal number is above the threshold). middle: its mean. spread: its standard deviation."""
    distance = middle - threshold
    if spread < 1e-9:
        return 1.0 if distance >= 0 else 0.0
    return 0.5 * math.erfc(-distance / (spread * math.sqrt(2)))
