"""Plans that an answer is without, as nothing is known of them at the batch asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from app.advisor.time_model.step_time import PlanTime
from probes.measurement import Measurement
from probes.profile import Profile
from probes.workload.description import Plan, Workload

Key = tuple[object, ...]


def uncalibrated_plans(
    plans: Sequence[Plan],
    profile: Profile | None,
    times: Mapping[Key, PlanTime],
    rows: Mapping[Key, Sequence[Measurement]],
    workload: Workload,
) -> tuple[Plan, ...]:
    """Those of thread counts that a quick calibration of many cores leaves out, where they were not tried at this
    batch, nor near enough to tell a time: of these nothing could be said, and of the others not how likely they are
    the best. times, rows: by the plan's key."""
    predicted = [times[plan.key].predicted is not None for plan in plans if plan.is_cpu]
    if profile is None or all(predicted) or not any(predicted):
        return ()
    # A plan whose own points alone are missing is none of them: the calibration's time did not do for it.
    clocked = {point.plan.threads for point in profile.points if point.plan.is_cpu}

    def is_known(plan: Plan) -> bool:
        was_tried = any(row.batch_size == workload.batch_size for row in rows.get(plan.key, ()))
        return was_tried or times[plan.key].at(workload.batch_size, workload.data) is not None

    return tuple(plan for plan in plans if plan.is_cpu and plan.threads not in clocked and not is_known(plan))
