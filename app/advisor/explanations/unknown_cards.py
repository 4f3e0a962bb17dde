"""Cards that nobody could ask torch about: why the answer is without them."""

from __future__ import annotations

from app.advisor.plans import unknown_cards
from app.advisor.recommendation import Reason
from probes.hardware import Survey


def explain_unknown_cards(survey: Survey, trouble: str | None) -> Reason:
    """trouble: why torch did not say which cards it can use."""
    cards = [card.name or card.id for card in unknown_cards(survey)]
    why = f" {trouble.rstrip('.')}." if trouble else ""
    if cards:
        what = f"Whether torch can use {' and '.join(cards)} is not known, so there is no plan for it here."
    else:
        what = "Which cards torch for ROCm shows, as it may under WSL, is not known, so there is no plan for any here."
    text = f"{what}{why} `crosspoint doctor` says how far the way to a card is open."
    return Reason("unknown-device", text, {"cards": cards})
