"""The reason that names operations of which a trace does not know what they compute."""

from __future__ import annotations

from app.advisor.recommendation import Option, Reason
from probes.trace import Trace

# Namespaces of operations that compute what a trace counts, or no more than they move; the last is a summary's own.
_KNOWN = ("aten", "crosspoint", "prims", "summary")


def explain_unknown_work(trace: Trace | None, best: Option | None) -> Reason | None:
    """Where the time told rests on operations that are not torch's own on tensors, such as a library's or those on
    quantized weights; None where real steps told it, or it has none."""
    if trace is None or best is None or not best.rests_on_prediction:
        return None
    ran = trace.on(cpu=best.plan.is_cpu).operations_under(best.plan.precision)
    unknown = (operation for operation in ran if operation.name.partition(".")[0] not in _KNOWN)
    names = list(dict.fromkeys(each.name for each in unknown if not any(each.flops)))
    if not names:
        return None
    text = (
        f"What {', '.join(names)} computes is not known: it counts here by the bytes that it moves alone, and a step "
        "may take much longer."
    )
    return Reason("unknown-work", text, {"operations": names, "basis": best.basis})
