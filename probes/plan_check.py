"""What a plan in a profile can be, and how quick."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from probes import bounds
from probes.checked import Refused
from probes.workload.description import Plan

if TYPE_CHECKING:
    from probes.context import Context
    from probes.points import NetworkPoint, Point
    from probes.profile import Profile


def check_plan(plan: Plan, place: str) -> Plan:
    """The plan. Raises Refused where torch has none like it."""
    if plan.is_cpu and plan.threads is None:
        raise Refused(f"{place}.threads is missing: on a CPU a plan has a number of them")
    if not plan.is_cpu and plan.threads is not None:
        raise Refused(f"{place}.threads belongs to a CPU's plan alone")
    if plan.is_cpu and plan.precision == "tf32":
        raise Refused(f"{place}.precision is tf32, which a CPU does not have")
    return plan


def check_rates(point: Point, place: str) -> Point:
    """The point. Raises Refused where it computes or moves more in a second than anything can."""
    threads = point.plan.threads if point.plan.is_cpu else None
    flops = bounds.MAX_DEVICE_FLOPS if threads is None else threads * bounds.MAX_THREAD_FLOPS
    moved = bounds.MAX_DEVICE_BYTES if threads is None else threads * bounds.MAX_THREAD_BYTES
    for quantity, most, does in ((point.flops, flops, "computes"), (point.bytes, moved, "moves")):
        if quantity > most * point.seconds.low:
            raise Refused(f"{place} {does} more in a second than {point.plan.label} can")
    return point


def check_devices(profile: Profile) -> None:
    """Raises Refused where a plan has more threads than its machine has cores, or a device that was measured itself is
    told as another."""
    _check_threads(profile)
    _check_likenesses(profile)


def _check_threads(profile: Profile) -> None:
    cores = None if profile.hardware is None else profile.hardware.usable_cores
    rows: tuple[Point | NetworkPoint | Context, ...] = (*profile.points, *profile.networks, *profile.contexts)
    if cores is not None and max((row.plan.threads or 1 for row in rows), default=1) > max(math.ceil(cores), 1):
        raise Refused(f"it has a plan of more threads than the {cores:g} cores that hardware.usable_cores tells of")


def _check_likenesses(profile: Profile) -> None:
    measured = {"cpu", *(point.plan.device for point in profile.points)}
    if any(device in measured or other == "cpu" for device, other in profile.like.items()):
        raise Refused("like tells a device as another that is the CPU, or was measured itself")
