"""What lets a recommended `cuda:N` be the same card in the user's own process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from app.advisor.recommendation import Option, Reason
from probes.gpu.device_order import BY_BUS, order_matters
from probes.hardware import Accelerator


def in_bus_order(best: Option | None, cards: Sequence[Accelerator]) -> Option | None:
    """The option as it is told: where unlike cards may be counted in another order, with the order it was named in."""
    if best is None or not _needs_order(best, cards):
        return best
    return replace(best, plan=replace(best.plan, environment={**best.plan.environment, **BY_BUS}))


def explain_order(best: Option | None, cards: Sequence[Accelerator]) -> Reason | None:
    if best is None or not _needs_order(best, cards):
        return None
    card = next((card for card in cards if card.torch_device == best.plan.device), None)
    name = f" ({card.name})" if card is not None and card.name else ""
    setting = " ".join(f"{variable}={value}" for variable, value in BY_BUS.items())
    text = (
        f"{best.plan.device}{name} is counted by the cards' places on the bus. Without {setting} CUDA counts the card "
        "first that it takes for the fastest, and the same name may be another card."
    )
    return Reason("device-order", text, {"device": best.plan.device, "environment": dict(BY_BUS)})


def _needs_order(best: Option, cards: Sequence[Accelerator]) -> bool:
    return not best.plan.is_cpu and order_matters(cards)
