"""The reason that says that a model for a device is larger than the host's memory, in which it is usually built."""

from __future__ import annotations

from app.advisor.explanations.words import say_bytes
from app.advisor.recommendation import Option, Reason
from probes.trace import Trace


def explain_host(
    trace: Trace | None, host_bytes: int | None, best: Option | None, kind: str = "layers"
) -> Reason | None:
    """host_bytes: that a new process could take of the host's memory; None: not known, and nothing is told. kind: of
    the model; one's own Python is built as it is written, in the snippet, too."""
    if trace is None or host_bytes is None or best is None or best.plan.is_cpu:
        return None
    weights = trace.parameter_bytes + trace.buffer_bytes
    if weights <= host_bytes:
        return None
    device = best.plan.device
    own = " in your own code: the snippet runs that as it is" if kind == "python" else ""
    text = (
        f"The weights take {say_bytes(weights)}, and {say_bytes(host_bytes)} of the host's memory are free: a model "
        f"that is built there first, as usual, never gets to {device}. Build it there, under "
        f'`with torch.device("{device}"):`{own}.'
    )
    return Reason("larger-than-host", text, {"weights_bytes": weights, "host_bytes": host_bytes})
