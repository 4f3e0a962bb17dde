"""Cards that nobody could ask torch about: why the answer is without them."""

from __future__ import annotations

from app.advisor.explanations.words import say_list
from app.advisor.plans import unknown_cards
from app.advisor.recommendation import Reason
from probes.hardware import Survey


def explain_unknown_cards(survey: Survey, trouble: str | None) -> Reason:
    """trouble: why torch did not say which cards it can use."""
    cards = [card.name or card.id for card in unknown_cards(survey)]
    why = f" {trouble.rstrip('.')}." if trouble else ""
    if cards:
        what = f"Whether torch can use {say_list(cards)} is not known, so there is no plan for it here."
    else:
        what = "Which cards torch for ROCm shows, as it may under WSL, is not known, so there is no plan for any here."
    text = f"{what}{why} `crosspoint doctor` says how far the way to a card is open."
    return Reason("unknown-device", text, {"cards": cards})


def explain_captured_cards(survey: Survey) -> Reason | None:
    """survey: of a captured machine. None where it has no card that torch might use."""
    cards = [card.name or card.id for card in unknown_cards(survey)]
    if not cards:
        return None
    text = (
        f"A captured machine does not tell whether torch can use {say_list(cards)}, so there is no plan for "
        f"{'any of them' if len(cards) > 1 else 'it'}. Ask on that machine itself, or with its profile."
    )
    return Reason("unknown-device", text, {"cards": cards})
