"""Whether a device's batches should come from pinned memory, where they were asked about from ordinary memory."""

from __future__ import annotations

from app.advisor.explanations.words import say_percent, say_seconds
from app.advisor.recommendation import Reason
from app.advisor.time_model.step_estimate import StepEstimate
from app.advisor.time_model.step_time import PlanTime
from probes.workload.description import Workload

# Of a step that is saved; less is not worth a setting.
WORTH_PINNING = 0.05


def pins(time: PlanTime | None, workload: Workload, *, can_run: bool) -> bool:
    """time: the recommended plan's. can_run: its step, fed from pinned memory, as far as is known. Where the times told
    are of pinned batches, or those would take less: some steps were measured to take longer."""
    if time is None or time.plan.is_cpu:
        return False
    return workload.data == "pinned" or (can_run and _both_ways(time, workload) is not None)


def explain_pinning(time: PlanTime | None, workload: Workload, *, can_run: bool) -> Reason | None:
    """Told where it pays, of who asked about ordinary memory. time, can_run: see pins."""
    found = None if time is None or time.plan.is_cpu or not can_run else _both_ways(time, workload)
    if found is None:
        return None
    pageable, pinned = found
    saved = 1 - pinned.seconds.median / pageable.seconds.median
    text = (
        f"From pinned memory (`pin_memory=True`), each batch copied while the step before it runs, a step takes "
        f"{say_seconds(pinned.seconds.median)} instead of {say_seconds(pageable.seconds.median)}, {say_percent(saved)} "
        "less. Copying ahead, on a stream of its own, is the training loop's to do."
    )
    numbers = {
        "gain": saved,
        "step_seconds": pinned.seconds.median,
        "without_seconds": pageable.seconds.median,
        "basis": [pinned.basis, pageable.basis],
    }
    return Reason("pinning-pays", text, numbers)


def _both_ways(time: PlanTime, workload: Workload) -> tuple[StepEstimate, StepEstimate] | None:
    """(pageable, pinned), where both are known and the second is worth it: not by a bound: pinning may fail there."""
    if workload.data != "pageable":
        return None
    pageable = time.at(workload.batch_size, "pageable")
    pinned = time.fed("pinned").at(workload.batch_size, "pinned")
    if pageable is None or pinned is None:
        return None
    is_bound = time.predicted is not None and time.predicted.model.feeding.bounds("pinned")
    if is_bound and pinned.basis != "measured":
        return None
    pays = pinned.seconds.median < (1 - WORTH_PINNING) * pageable.seconds.median
    return (pageable, pinned) if pays else None
