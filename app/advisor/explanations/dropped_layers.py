"""The reason that says how many of its layers a model leaves out while it is trained."""

from __future__ import annotations

from app.advisor.recommendation import Option, Reason
from probes.trace import Trace


def explain_dropped_layers(trace: Trace | None, best: Option | None) -> Reason | None:
    """Where the time told is of a step with every layer, and training leaves some out by chance (LayerDrop); None where
    real steps told it, which left them out, or where it has none."""
    if trace is None or not trace.layers_dropped or best is None or best.basis in ("measured", "probed"):
        return None
    run = 1 - trace.layers_dropped
    text = (
        f"This model leaves out layers by chance while it is trained (LayerDrop): on average {run:.3g} of "
        "those run that may be left out. Time and memory here are of a step that runs all of them: the memory has to "
        "do for such a step, while an average one takes less time."
    )
    return Reason("layers-dropped", text, {"layers_run": round(run, 6), "basis": best.basis})
