"""The reasons that say why this plan: against the other kind of device, other numbers of threads, other precisions."""

from __future__ import annotations

from app.advisor.environments import is_variant
from app.advisor.explanations.words import say_ratio, say_seconds
from app.advisor.ranking import Ranking
from app.advisor.recommendation import Option, Reason

# Differences below this are within what a machine does from run to run.
WORTH_TELLING = 0.05


def explain_device_choice(ranking: Ranking, best: Option) -> Reason | None:
    """The best plan on the other kind of device, and by how much it loses. None where others hold cores that one of the
    two needs: its median is a guess between extremes, and not what it is ranked by."""
    other = next((option for option in _timed(ranking) if option.plan.is_cpu != best.plan.is_cpu), None)
    if other is None or other.crowded or best.crowded:
        return None
    ratio = _median(other) / _median(best)
    text = (
        f"A step takes {say_seconds(_median(best))} on {best.plan.label} and {say_seconds(_median(other))} on "
        f"{other.plan.label}: {say_ratio(max(ratio, 1 / ratio))} {'as long' if ratio >= 1 else 'shorter'}."
    )
    return Reason("device", text, {"ratio": ratio, "other": other.plan.label, "basis": [best.basis, other.basis]})


def explain_threads(ranking: Ranking, best: Option) -> Reason | None:
    """Most threads against fewest, both in the recommended precision, of those that need no core that others hold: the
    median of one that does is a guess between extremes."""
    rows = [o for o in _plain(ranking) if o.plan.is_cpu and o.plan.precision == best.plan.precision and not o.crowded]
    rows.sort(key=lambda option: option.plan.threads or 0)
    if not best.plan.is_cpu or best.crowded or len(rows) < 2:
        return None
    fewest, most = rows[0], rows[-1]
    ratio = _median(most) / _median(fewest)
    numbers = {
        "seconds": {str(row.plan.threads): _median(row) for row in rows},
        "ratio": ratio,
        "basis": [fewest.basis, most.basis],
    }
    few = "one" if fewest.plan.threads == 1 else str(fewest.plan.threads)
    taken = f"{say_seconds(_median(most))} with {most.plan.threads} threads, {say_seconds(_median(fewest))} with {few}"
    if ratio > 1 + WORTH_TELLING:
        return Reason("threads-hurt", f"More threads are slower: a step takes {taken}.", numbers)
    if ratio < 1 - WORTH_TELLING:
        gain = f"{say_ratio(1 / ratio)} as fast"
        return Reason("threads-help", f"More threads are faster: a step takes {taken}, {gain}.", numbers)
    return Reason("threads-equal", f"More threads change little: a step takes {taken}.", numbers)


def explain_precision(ranking: Ranking, best: Option) -> Reason | None:
    """The recommended precision against fp32, or fp32 against the best of the others, all else equal."""
    rows = [o for o in _plain(ranking) if (o.plan.device, o.plan.threads) == (best.plan.device, best.plan.threads)]
    others = [row for row in rows if (row.plan.precision == "fp32") != (best.plan.precision == "fp32")]
    other = min(others, key=_median, default=None)
    if other is None or other.crowded != best.crowded:
        return None
    ratio = _median(other) / _median(best)
    numbers = {"ratio": ratio, "other": other.plan.label, "basis": [best.basis, other.basis]}
    taken = (
        f"a step takes {say_seconds(_median(best))} in {best.plan.precision} and {say_seconds(_median(other))} in "
        f"{other.plan.precision}"
    )
    if best.plan.precision != "fp32":
        if ratio <= 1:
            return None  # it won with a setting that the others were not measured with
        return Reason("precision-gain", f"{best.plan.precision} pays: {taken}.", numbers)
    if ratio > 1 + WORTH_TELLING:
        return Reason("precision-hurts", f"{other.plan.precision} does not pay: {taken}.", numbers)
    return None


def _timed(ranking: Ranking) -> list[Option]:
    return [option for option in ranking.options if option.step_seconds is not None and option.fits is not False]


def _plain(ranking: Ranking) -> list[Option]:
    """Those with torch's own environment, so that all else is equal."""
    return [option for option in _timed(ranking) if not is_variant(option.plan)]


def _median(option: Option) -> float:
    return option.step_seconds.median if option.step_seconds is not None else float("inf")
