"""What steps of variants take, beside the plans that they are compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from app.advisor.crowding import Crowd
from app.advisor.environments import Gain, bare, measured_beside
from app.advisor.time_model.step_time import PlanTime
from probes.measurement import Measurement
from probes.workload.description import Workload


def times_of_variants(
    gains: Sequence[Gain],
    times: Mapping[tuple[object, ...], PlanTime],
    measurements: Sequence[Measurement],
    workload: Workload,
    crowd: Crowd | None,
) -> dict[tuple[object, ...], PlanTime]:
    """Of what was measured beside its plain plan, whose times are among `times`: its share of whatever that is told to
    take there, as once others have left; where the plain plan did not run among them, as it was measured."""
    found = {}
    for gain in gains:
        plain = times[bare(gain.plan).key]
        measured = measured_beside(measurements, gain, plain.measured, workload.data)
        ran = plain.measured is not None and gain.batch_size in plain.measured.batch_sizes
        share_of = (plain, gain.step.median / gain.control.median) if ran else None
        found[gain.plan.key] = PlanTime(
            gain.plan, measured, None, workload.readings_every, crowd=crowd, share_of=share_of
        )
    return found
