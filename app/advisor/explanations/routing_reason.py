"""The reason that says what was taken for granted of a mixture of experts."""

from __future__ import annotations

from app.advisor.recommendation import Option, Reason
from probes.trace import Trace


def explain_routing(trace: Trace | None, best: Option | None) -> Reason | None:
    """Where the time told rests on experts being chosen equally often; None where real steps told it, or none is."""
    if trace is None or not trace.evenly_routed or best is None or not best.rests_on_prediction:
        return None
    text = (
        "Which experts a row is sent to hangs on numbers that only a real step has. Here they are taken to be chosen "
        "equally often; where some are chosen more often than others a step takes longer or shorter."
    )
    return Reason("experts-evenly-chosen", text, {"basis": best.basis})
