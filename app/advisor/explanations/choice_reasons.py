"""The reasons that say why this plan: against the other kind of device, other numbers of threads, other precisions."""

from __future__ import annotations

from app.advisor.environments import is_variant
from app.advisor.explanations.words import say_ratio, say_seconds
from app.advisor.ranking import Ranking
from app.advisor.recommendation import Option, Reason

# Differences below this are within what a machine does from run to run.
WORTH_TELLING = 0.05


def explain_device_choice(ranking: Ranking, best: Option) -> Reason | None:
    """The best plan on the other kind of device, and by how much it loses. None where the median of one of the two is a
    guess between extremes."""
    other = next((option for option in _timed(ranking) if option.plan.is_cpu != best.plan.is_cpu), None)
    if other is None or is_guess(other) or is_guess(best):
        return None
    ratio = _median(other) / _median(best)
    times = max(ratio, 1 / ratio)
    how = "about as long"
    if times > 1 + WORTH_TELLING:
        how = f"{say_ratio(times)} {'as long' if ratio >= 1 else 'shorter'}"
    text = (
        f"A step takes {say_seconds(_median(best))} on {best.plan.label} and {say_seconds(_median(other))} on "
        f"{other.plan.label}: {how}."
    )
    return Reason("device", text, {"ratio": ratio, "other": other.plan.label, "basis": [best.basis, other.basis]})


def explain_threads(ranking: Ranking, best: Option) -> Reason | None:
    """Most threads against fewest, both in the recommended precision, of those whose median is no guess between
    extremes; where the recommended plan has some number between, that one against the fewest, and the most beside."""
    alike = (o for o in _plain(ranking) if o.plan.is_cpu and o.plan.precision == best.plan.precision)
    rows = [option for option in alike if not is_guess(option)]
    rows.sort(key=lambda option: option.plan.threads or 0)
    if not best.plan.is_cpu or is_guess(best) or len(rows) < 2:
        return None
    fewest, most = rows[0], rows[-1]
    told = [row for row in rows if row in (fewest, most) or row.plan.threads == best.plan.threads]
    more = told[1]  # than the fewest
    ratio = _median(most) / _median(fewest)
    numbers = {
        "seconds": {str(row.plan.threads): _median(row) for row in rows},
        "ratio": ratio,
        "basis": [fewest.basis, most.basis],
    }
    taken = ", ".join(f"{say_seconds(_median(row))} with {_threads(row)}" for row in reversed(told))
    gain = _median(fewest) / _median(more)
    if gain > 1 + WORTH_TELLING:
        gained, beyond = f"{say_ratio(gain)} as fast", ""
        if more is not most:
            gained += f" with {more.plan.threads} as with {_threads(fewest)}"
        if _median(most) > (1 + WORTH_TELLING) * _median(more):
            beyond = f" up to {more.plan.threads}, and slower beyond"
        numbers = {**numbers, "ratio": 1 / gain, "basis": [fewest.basis, more.basis]}
        return Reason("threads-help", f"More threads are faster{beyond}: a step takes {taken}, {gained}.", numbers)
    if ratio > 1 + WORTH_TELLING:
        return Reason("threads-hurt", f"More threads are slower: a step takes {taken}.", numbers)
    return Reason("threads-equal", f"More threads change little: a step takes {taken}.", numbers)


def _threads(option: Option) -> str:
    return "one" if option.plan.threads == 1 else f"{option.plan.threads} threads"


def explain_precision(ranking: Ranking, best: Option) -> Reason | None:
    """The recommended precision against fp32, or fp32 against the best of the others, all else equal. None where the
    median of one of the two is a guess between extremes."""
    rows = [o for o in _plain(ranking) if (o.plan.device, o.plan.threads) == (best.plan.device, best.plan.threads)]
    others = [row for row in rows if (row.plan.precision == "fp32") != (best.plan.precision == "fp32")]
    other = min(others, key=_median, default=None)
    if other is None or is_guess(other) or is_guess(best):
        return None
    ratio = _median(other) / _median(best)
    numbers = {"ratio": ratio, "other": other.plan.label, "basis": [best.basis, other.basis]}
    taken = (
        f"a step takes {say_seconds(_median(best))} in {best.plan.precision} and {say_seconds(_median(other))} in "
        f"{other.plan.precision}"
    )
    if best.plan.precision != "fp32":
        if ratio <= 1 + WORTH_TELLING:
            return None  # it won with a setting that the others were not measured with, or by little
        return Reason("precision-gain", f"{best.plan.precision} pays: {taken}.", numbers)
    if ratio > 1 + WORTH_TELLING:
        return Reason("precision-hurts", f"{other.plan.precision} does not pay: {taken}.", numbers)
    return None


def is_guess(option: Option) -> bool:
    """Others hold cores that it needs, or did when its time was taken: its median lies between extremes."""
    return option.crowded or option.relieved


def _timed(ranking: Ranking) -> list[Option]:
    return [option for option in ranking.options if option.step_seconds is not None and option.fits is not False]


def _plain(ranking: Ranking) -> list[Option]:
    """Those with torch's own environment, so that all else is equal."""
    return [option for option in _timed(ranking) if not is_variant(option.plan)]


def _median(option: Option) -> float:
    return option.step_seconds.median if option.step_seconds is not None else float("inf")
