"""Cards that torch may train on and nobody measures here: why the answer is without them."""

from __future__ import annotations

from app.advisor.plans import MEASURED, unmeasured_cards
from app.advisor.recommendation import Reason
from app.advisor.request import Request
from probes.hardware import Survey


def explain_unmeasured_cards(survey: Survey, request: Request) -> Reason | None:
    """None where there is none, or where it was said which devices the answer is to be about."""
    cards = [card.name or card.id for card in unmeasured_cards(survey)]
    if not cards or request.devices:
        return None
    text = f"There is no plan for {' and '.join(cards)}, whatever torch can do with it: {MEASURED}."
    return Reason("device-not-measured", text, {"cards": cards})
