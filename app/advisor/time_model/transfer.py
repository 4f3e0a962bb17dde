"""What feeding a device and reading it back costs, from a profile's points."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from probes.profile import Point, Profile
from probes.workload.description import Plan


def transfer_seconds(profile: Profile, plan: Plan, moved_bytes: float, data: str) -> float | None:
    """Seconds to put `moved_bytes` on the plan's device; None when the profile did not measure it.

    Between measured sizes on a straight line, as a copy is a latency and a bandwidth; beyond the largest at its
    bandwidth, below the smallest at its latency.
    """
    if plan.is_cpu or data == "resident":
        return 0.0
    pinned = 1.0 if data == "pinned" else 0.0
    points = [
        point
        for point in _points(profile, plan, "transfer")
        if point.parameters.get("pinned", 0.0) == pinned and point.parameters.get("to_device", 1.0) == 1.0
    ]
    return _interpolate(points, moved_bytes)


def hidden_transfer(copy: float, step: float, data: str) -> float:
    """What of a copy shows: pinned batches are fetched ahead while the step runs, so only what outlasts it."""
    return max(copy - step, 0.0) if data == "pinned" else copy


def synchronize_seconds(profile: Profile, plan: Plan) -> float:
    """Seconds that one reading with `.item()` takes beyond the work it waits for; 0 where it was not measured."""
    points = _points(profile, plan, "synchronize")
    return min((point.seconds.median for point in points), default=0.0)


def _points(profile: Profile, plan: Plan, constant: str) -> list[Point]:
    return [point for point in profile.points if point.constant == constant and point.plan.device == plan.device]


def _interpolate(points: Sequence[Point], moved_bytes: float) -> float | None:
    ordered = sorted((point for point in points if point.bytes > 0), key=lambda point: point.bytes)
    if not ordered:
        return None
    if moved_bytes <= ordered[0].bytes:
        return ordered[0].seconds.median
    for before, after in itertools.pairwise(ordered):
        if moved_bytes <= after.bytes:
            share = (moved_bytes - before.bytes) / (after.bytes - before.bytes)
            return before.seconds.median + share * (after.seconds.median - before.seconds.median)
    return ordered[-1].seconds.median * moved_bytes / ordered[-1].bytes
