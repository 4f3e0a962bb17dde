"""Devices to which no copies of the kind asked for were calibrated: what is known of their times all the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from app.advisor.explanations.words import say_seconds
from app.advisor.recommendation import Option, Reason
from probes.workload.description import Data, Plan


def say_uncopied(plan: Plan, data: Data, seconds: float) -> str:
    """Of a plan that has no time for it. seconds: of its step without any copy."""
    return (
        f"No copies from {data} memory to {plan.device} were calibrated, so nothing is known about steps fed so. "
        f"Without a copy one takes about {say_seconds(seconds)} on {plan.label}: ask with data resident."
    )


def say_best_uncopied(options: Iterable[Option], data: Data, limit: float | None = None) -> str | None:
    """The same of the quickest of those that have no time for it; None where there is none, or it takes no less than
    the limit, in seconds."""
    quickest = next(iter(_quickest_first(option for option in options if option.step_seconds is None)), None)
    if quickest is None or (limit is not None and _seconds(quickest) >= limit):
        return None
    return say_uncopied(quickest.plan, data, _seconds(quickest))


def explain_uncopied(options: Sequence[Option], data: Data) -> Iterable[Reason]:
    """By device. options: of one plan on cards that are alike, one. data: how the steps are fed that are told."""
    lacking = _quickest_first(options)
    for device in dict.fromkeys(option.plan.device for option in lacking):
        told = [option for option in lacking if option.plan.device == device]
        text = say_best_uncopied(told, data) or (
            f"No copies from pinned memory to {device} were calibrated: its times are told with those from pageable "
            "memory, which take no less, so that a step takes no longer than they say."
        )
        labels = [option.plan.label for option in told]
        yield Reason("no-copies", text, {"plans": labels, "data": data, "without_copies_seconds": _seconds(told[0])})


def _quickest_first(options: Iterable[Option]) -> list[Option]:
    return sorted((option for option in options if option.uncopied_seconds is not None), key=_seconds)


def _seconds(option: Option) -> float:
    return option.uncopied_seconds or 0.0
