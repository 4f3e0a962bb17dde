"""A card on which somebody else computes: what that means for the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from app.advisor.explanations.words import say_percent
from app.advisor.recommendation import Option, Reason
from probes.hardware import Accelerator, Survey
from probes.measurement import BUSY_FRACTION, Measurement
from probes.workload.description import Plan


def is_busy(card: Accelerator) -> bool:
    return (card.utilization_percent or 0.0) / 100 >= BUSY_FRACTION


def without_utilization(survey: Survey) -> Survey:
    """For where what cards are busy with may be a measurement of ours."""
    return replace(survey, accelerators=tuple(replace(card, utilization_percent=None) for card in survey.accelerators))


def busy_fraction(survey: Survey, plan: Plan) -> float | None:
    """Of the time, how much of it others computed on the plan's device; None: not known, or a CPU."""
    card = next((card for card in survey.accelerators if card.torch_device == plan.device), None)
    return None if card is None or card.utilization_percent is None else card.utilization_percent / 100


def devices_by_use(survey: Survey) -> tuple[frozenset[str], frozenset[str]]:
    """Of the cards of which it is known now: those that nobody else computes on, and those that somebody does."""
    known = [card for card in survey.accelerators if card.torch_device and card.utilization_percent is not None]
    busy = frozenset(str(card.torch_device) for card in known if is_busy(card))
    return frozenset(str(card.torch_device) for card in known) - busy, busy


def explain_busy_device(
    survey: Survey, options: Sequence[Option], best: Plan | None, row: Measurement | None
) -> Reason | None:
    """survey: from before anything of this answer was measured. row: the measurement that the recommended plan's time
    rests on most. Told where that plan's card is shared, or its time is of when it was; else where a card has no times,
    as it is not calibrated beside others."""
    for card in sorted(survey.accelerators, key=lambda card: best is None or card.torch_device != best.device):
        here = [option for option in options if option.plan.device == card.torch_device and _may_run(option)]
        is_best = best is not None and best.device == card.torch_device
        if is_best and is_busy(card):
            follows = _what_follows(row)
        elif is_best and row is not None and row.met_others and card.utilization_percent is not None:
            return _left(card, row)
        elif is_busy(card) and here and all(option.step_seconds is None for option in here):
            follows = "It is not calibrated meanwhile, so nothing is known of its times: ask again when it is free."
        else:
            continue
        share = (card.utilization_percent or 0.0) / 100
        text = f"Others compute on {_named(card)}: it was busy for {say_percent(share)} of the time just now. {follows}"
        return Reason("busy-device", text, {"device": card.torch_device, "busy_fraction": share})
    return None


def _may_run(option: Option) -> bool:
    return option.fits is not False and not option.cannot_run


def _what_follows(row: Measurement | None) -> str:
    if row is None or row.met_nobody:
        return "The time is of the card with nobody else on it: a step takes longer while they share it."
    beside = " beside others" if row.met_others else ""
    return f"The time rests on what was measured{beside}, and contains as much of theirs as it met."


def _left(card: Accelerator, row: Measurement) -> Reason:
    share = row.device_busy_fraction or 0.0
    text = (
        f"When this was measured others computed on {_named(card)}, which was busy for {say_percent(share)} of the "
        "time before, and they do no more: a step may take less than is told here. Measure it again (effort quick)."
    )
    return Reason("busy-device", text, {"device": card.torch_device, "busy_fraction": share})


def _named(card: Accelerator) -> str:
    return f"{card.torch_device} ({card.name})" if card.name else str(card.torch_device)
