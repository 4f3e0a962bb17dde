"""What an answer was drawn from: other batch sizes of the same workload can be told from it, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.advisor.time_model.experience import Experience
from probes.hardware import Survey
from probes.measurement import Measurement
from probes.profile import Profile
from probes.trace import Trace


@dataclass(frozen=True, slots=True)
class Grounds:
    """measurements: kept ones, and those that could not be kept. captured: the machine can only be read. unreadable:
    why nobody can tell whether it was calibrated."""

    survey: Survey
    profile: Profile | None
    trace: Trace | None
    measurements: Sequence[Measurement]
    experience: Experience | None
    captured: bool = False
    unreadable: str | None = None
