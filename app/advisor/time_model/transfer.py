"""What feeding a device and reading it back costs, from a profile's points."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from probes.points import Point
from probes.profile import Profile
from probes.workload.description import Plan


@dataclass(frozen=True, slots=True)
class Feeding:
    """Of one plan. pageable, pinned: copies to its device from there, by their growing size. reading: seconds that one
    reading with `.item()` takes beyond the work it waits for; 0 where it was not measured."""

    on_cpu: bool
    pageable: tuple[Point, ...]
    pinned: tuple[Point, ...]
    reading: float

    def copy_seconds(self, moved_bytes: float, data: str) -> float | None:
        """Seconds to put `moved_bytes` on the device; None when the profile did not measure it.

        Between measured sizes on a straight line, as a copy is a latency and a bandwidth; beyond the largest at its
        bandwidth, below the smallest at its latency.
        """
        if self.on_cpu or data == "resident":
            return 0.0
        return _interpolate(self.pinned if data == "pinned" else self.pageable, moved_bytes)

    def bounds(self, data: str) -> bool:
        """Copies from pinned memory were not measured, as where pinning fails, and pageable ones were: those have the
        highest bandwidth there is (CUDA C++ Best Practices Guide, "Pinned Memory"), and so take no longer."""
        return not self.on_cpu and data == "pinned" and not self.pinned and bool(self.pageable)


def feeding_of(profile: Profile, plan: Plan) -> Feeding:
    """One pass over the points, of which there are hundreds: a question asks about a hundred batches."""
    points = [point for point in profile.points if point.plan.device == plan.device]
    copies = [
        point for point in points if point.constant == "transfer" and point.parameters.get("to_device", 1.0) == 1.0
    ]
    readings = (point.seconds.median for point in points if point.constant == "synchronize")
    pageable, pinned = (_by_size(copies, is_pinned) for is_pinned in (0.0, 1.0))
    return Feeding(plan.is_cpu, pageable, pinned, min(readings, default=0.0))


def hidden_transfer(copy: float, step: float, data: str) -> float:
    """What of a copy shows: pinned batches are fetched ahead while the step runs, so only what outlasts it."""
    return max(copy - step, 0.0) if data == "pinned" else copy


def _by_size(copies: Iterable[Point], is_pinned: float) -> tuple[Point, ...]:
    known = (point for point in copies if point.bytes > 0 and point.parameters.get("pinned", 0.0) == is_pinned)
    return tuple(sorted(known, key=lambda point: point.bytes))


def _interpolate(ordered: Sequence[Point], moved_bytes: float) -> float | None:
    if not ordered:
        return None
    if moved_bytes <= ordered[0].bytes:
        return ordered[0].seconds.median
    for before, after in itertools.pairwise(ordered):
        if moved_bytes <= after.bytes:
            share = (moved_bytes - before.bytes) / (after.bytes - before.bytes)
            return before.seconds.median + share * (after.seconds.median - before.seconds.median)
    return ordered[-1].seconds.median * moved_bytes / ordered[-1].bytes
