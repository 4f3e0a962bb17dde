"""Whether a plan's steps were seen to make denormals: numbers too small for a full fraction."""

from __future__ import annotations

from collections.abc import Sequence

from app.advisor.environments import bare
from probes.measurement import Measurement
from probes.workload.description import Plan

# Of the numbers in a step, from which on flushing denormals is tried. Arithmetic on one takes some hundred cycles where
# it takes long (Intel's optimization manual, "Floating-point exceptions"), and a cycle or so on any other.
DENORMAL_SHARE = 1e-4


def saw_denormals(measurements: Sequence[Measurement], plan: Plan, batch_size: int) -> bool | None:
    """Whether so many were seen in steps of the plan as torch has it, of which a variant's measurement tells as well;
    None where nobody looked."""
    rows = [row for row in measurements if (bare(row.plan).key, row.batch_size) == (bare(plan).key, batch_size)]
    shares = [row.denormal_share for row in rows if row.denormal_share is not None]
    return max(shares) >= DENORMAL_SHARE if shares else None
