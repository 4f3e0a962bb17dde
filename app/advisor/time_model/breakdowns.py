"""What a step's time is made of: measured parts, or parts that add up to what is known of the whole."""

from __future__ import annotations

from app.advisor.recommendation import Breakdown
from app.advisor.time_model.predicted import breakdown_parts
from app.advisor.time_model.transfer import hidden_transfer
from probes.measurement import Overheads
from probes.workload.description import Plan

# Of a device's step: where issuing takes no less, the device waits for it, whatever it computes.
ISSUES_ALL = 0.9


def measured_breakdown(plan: Plan, overheads: Overheads, step: float, log_every: int | None, data: str) -> Breakdown:
    """The measured parts of one step. A loss that is read every n steps costs an nth of a reading each step. On a
    device `launch` is only what issuing adds beyond computing, where it is known for how long the device computes."""
    reading, launch, compute = overheads.synchronize_seconds, overheads.launch_seconds, overheads.compute_seconds
    synchronize = 0.0 if log_every is None else None if reading is None else reading / log_every
    transfer = 0.0 if plan.is_cpu or data == "resident" else overheads.transfer_seconds
    if transfer and data == "pinned":
        transfer = hidden_transfer(transfer, (launch or 0.0) + (compute or 0.0), data)
    if transfer:  # timed by itself, apart from the steps, which may come out shorter
        transfer = min(transfer, max(step - (synchronize or 0.0), 0.0))
    visible = (transfer or 0.0) + (synchronize or 0.0)
    if not plan.is_cpu and overheads.device_busy is not None and launch is not None:
        busy = overheads.device_busy * step
        most = max(step - visible, 0.0)
        compute = min(busy, most) if launch > busy else most  # what lies between kernels is theirs
        launch = max(step - compute - visible, 0.0)
    elif not plan.is_cpu and launch is not None and compute is not None and launch < compute:
        compute, launch = max(step - visible, 0.0), 0.0  # the device computes while the host issues, and long after
    elif not plan.is_cpu and launch is not None and overheads.device_busy is None and launch < ISSUES_ALL * step:
        compute = None  # nobody looked for how long the device computes, which may be as long
    elif compute is None and launch is not None:
        compute = max(step - launch - visible, 0.0)
    return Breakdown(transfer, launch, compute, synchronize)


def scaled(breakdown: Breakdown, step: float) -> Breakdown:
    """The same parts, so that they add up to the step; unknown where it is not known which of it is a copy."""
    total = sum(breakdown_parts(breakdown))
    if total <= 0 or breakdown.transfer is None:
        return Breakdown()
    factor = step / total

    def part(seconds: float | None) -> float | None:
        return None if seconds is None else seconds * factor

    return Breakdown(
        part(breakdown.transfer), part(breakdown.launch), part(breakdown.compute), part(breakdown.synchronize)
    )
