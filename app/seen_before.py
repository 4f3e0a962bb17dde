"""What the survey from before a measurement adds to what a measuring process sent."""

from __future__ import annotations

import time
from dataclasses import replace

from app.advisor.explanations.busy_device import busy_fraction
from app.advisor.like_cards import like_devices
from app.advisor.memory_model.rooms import available_bytes
from probes.hardware import Survey
from probes.machine_facts import facts_of
from probes.measurement import Measurement
from probes.profile import Profile


def with_survey(row: Measurement, survey: Survey) -> Measurement:
    """With the time, who computed on its device before, and what was free where it ran out of memory, or where nobody
    knows what it took: where more is free it may run, where less is it may not."""
    row = replace(row, measured_at=time.time(), device_busy_fraction=busy_fraction(survey, row.plan))
    if row.outcome != "out-of-memory" and (row.outcome != "ok" or row.held_bytes is not None):
        return row
    return replace(row, available_bytes=available_bytes(survey, row.plan))


def with_devices(measured: Profile, survey: Survey) -> Profile:
    """With the machine's facts: which devices are like those that were measured, and how busy others kept these."""
    plans = {point.plan.device: point.plan for point in measured.points if not point.plan.is_cpu}
    busy = [fraction for plan in plans.values() if (fraction := busy_fraction(survey, plan)) is not None]
    noise = {**measured.noise, "device_busy_fraction": max(busy)} if busy else measured.noise
    return replace(measured, hardware=facts_of(survey), like=like_devices(survey, tuple(plans)), noise=noise)
