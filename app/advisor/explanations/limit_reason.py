"""The reasons that say what a step's time goes into: of the recommended plan, and of a device that loses to the CPU."""

from __future__ import annotations

from typing import Any

from app.advisor.explanations.choice_reasons import WORTH_TELLING, is_guess
from app.advisor.explanations.words import say_list, say_percent, say_seconds
from app.advisor.ranking import Ranking
from app.advisor.recommendation import Breakdown, Interval, Option, Reason
from probes.workload.description import Plan

# A part is what limits a step when it takes half of it or more.
LIMITING = 0.5


def explain_limit(best: Option) -> Reason | None:
    """What most of the step is spent on. None of a guess between extremes: what others take of it is no part of it."""
    seconds, shares = best.step_seconds, _shares(best)
    if seconds is None or not shares or is_guess(best):
        return None
    name, share = _largest(shares)
    if share < LIMITING:
        return None
    code = {
        "launch": "dispatch-bound" if best.plan.is_cpu else "launch-bound",
        "transfer": "transfer-bound",
        "compute": "compute-bound",
        "synchronize": "synchronize-bound",
    }[name]
    text = (
        f"{say_percent(share)} of a step on {best.plan.label} goes into {_work(best.plan)[name]} "
        f"({_say_part(share, seconds)})."
    )
    return Reason(code, text, {"share": share, "step_seconds": seconds.median, "basis": best.basis})


def explain_slower_device(ranking: Ranking, best: Option) -> Reason | None:
    """Where the CPU is recommended: what makes the best plan on a device take longer. None where it may not, or nobody
    knows what its step is made of."""
    on_devices = (option for option in ranking.unlike if not option.plan.is_cpu and option.fits is not False)
    other = next((option for option in on_devices if option.step_seconds is not None), None)
    if not best.plan.is_cpu or other is None or other.step_seconds is None or best.step_seconds is None:
        return None
    shares, seconds, ours = _shares(other), other.step_seconds, best.step_seconds
    if not shares or seconds.median <= (ours.high if is_guess(best) else ours.median):
        return None
    name, share = _largest(shares)
    work, label = _work(other.plan), other.plan.label
    if share >= LIMITING:
        text = (
            f"What makes {label} slower is {work[name]}: {say_percent(share)} of its step ({_say_part(share, seconds)})"
        )
        if not is_guess(best) and share * seconds.median > ours.median:
            text += f", more than the whole of a step takes on {best.plan.label}"
    else:
        parts = sorted(((part, name) for name, part in shares.items() if part > WORTH_TELLING), reverse=True)
        what = say_list([f"{work[name]} ({say_percent(part)})" for part, name in parts])
        text = f"No single part makes {label} slower: a step on it goes into {what}"
    numbers: dict[str, Any] = {
        "plan": label,
        "limit": name if share >= LIMITING else None,
        "shares": shares,
        "step_seconds": seconds.median,
        "basis": other.basis,
    }
    return Reason("device-slower", f"{text}.", numbers)


def _work(plan: Plan) -> dict[str, str]:
    """Each part of a breakdown, in words."""
    return {
        "launch": "dispatching operations" if plan.is_cpu else "launching operations, which the device waits for",
        "transfer": "copying the batch to the device",
        "compute": "computing",
        "synchronize": "waiting to read results back",
    }


def _shares(option: Option) -> dict[str, float]:
    """Of a step, what each known part takes; empty where it is not known how much of it is computing. On a device where
    launching counts it holds all of the time that the host takes for it."""
    parts, seconds = option.breakdown_seconds, option.step_seconds
    if seconds is None or parts.compute is None:
        return {}
    shares = {name: min(part / seconds.median, 1.0) for name, part in _named(parts).items() if part is not None}
    if not option.plan.is_cpu and shares.get("launch", 0.0) > WORTH_TELLING:
        # Issuing goes on while the device computes: where it takes longer than that, the host is the limit.
        shares["launch"] = min(shares["launch"] + shares.pop("compute"), 1.0)
    return shares


def _named(parts: Breakdown) -> dict[str, float | None]:
    return {
        "transfer": parts.transfer,
        "launch": parts.launch,
        "compute": parts.compute,
        "synchronize": parts.synchronize,
    }


def _largest(shares: dict[str, float]) -> tuple[str, float]:
    return max(shares.items(), key=lambda item: item[1])


def _say_part(share: float, seconds: Interval) -> str:
    return f"{say_seconds(share * seconds.median)} of {say_seconds(seconds.median)}"
