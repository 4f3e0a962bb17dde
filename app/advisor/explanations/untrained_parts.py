"""The reason that says how much of a model the step told of does not train."""

from __future__ import annotations

from app.advisor.explanations.words import say_bytes, say_percent
from app.advisor.recommendation import Reason
from probes.trace import Trace
from probes.workload.description import Workload

# Most models have a few weights that their task does not use, such as an embedding of what is masked: no news.
TOLD_SHARE = 0.01
_WEIGHT_BYTES = 4  # of a config's model: its weights are fp32, whatever a plan's precision


def explain_untrained_parts(trace: Trace | None, workload: Workload) -> Reason | None:
    """Where a config's model has weights that get no gradient in the step that was traced; None where they are few. Of
    one's own Python it is not told: there it is the user's own doing."""
    if trace is None or trace.mode != "training" or workload.model.kind != "huggingface":
        return None
    gradients = _WEIGHT_BYTES * trace.parameters
    missing = gradients - trace.gradient_bytes
    if not trace.gradient_bytes or missing < TOLD_SHARE * gradients:
        return None
    state = round(trace.optimizer_bytes * missing / trace.gradient_bytes)
    more = f"{say_bytes(missing)} of gradients" + (f" and {say_bytes(state)} of the optimizer's state" if state else "")
    text = (
        f"{say_percent(missing / gradients)} of this model's parameters get no gradient in the step that was traced: "
        "parts that see or hear, where it is fed text alone; parts that run for some numbers only (Longformer's "
        "global attention), which were taken not to; or parts that this task does not use. Where your own steps train "
        f"them, each takes longer, and {more} come to what is told of memory."
    )
    evidence = {"parameters": missing // _WEIGHT_BYTES, "gradient_bytes": missing, "optimizer_bytes": state}
    return Reason("untrained-parts", text, evidence)
