"""What a step takes by rules of thumb, from the figures of a profile: the estimates stand beside them."""

from __future__ import annotations

from typing import Any

from app.advisor.operation_prices.prices import Prices, prices_for
from app.advisor.time_model.features import features_at
from app.advisor.time_model.predicted import model_of_plan
from probes.profile import Profile
from probes.trace import Trace
from probes.workload.description import Plan

Document = dict[str, Any]

RULES = ("roofline", "roofline, all in a cache", "operations alone")


def baselines(profile: Profile, plan: Plan, trace: Trace, batch_size: int) -> Document:
    """Seconds by the rules of thumb, from the figures of the same profile; None where it has none of the plan."""
    model = model_of_plan(profile, plan, trace.mode)  # remembered, which prices alone are not
    if model is None:
        return dict.fromkeys(RULES)
    prices = model.prices
    alone = Prices(prices.plan, prices.dispatch, prices.arithmetic, prices.moving, prices.optimizer, prices.work)
    return {
        "roofline": roofline(profile, plan, trace, batch_size),
        "roofline, all in a cache": roofline(profile, plan, trace, batch_size, cached=True),
        "operations alone": sum(features_at(trace, alone, batch_size)),
    }


def roofline(profile: Profile, plan: Plan, trace: Trace, batch_size: int, *, cached: bool = False) -> float | None:
    """Every operation at the best rate or at memory's bandwidth, whichever is longer; None without either.

    The bandwidth is that of the largest working set that was copied under all plans of the device in this precision.
    cached: the best of any, a cache's; a step's operations are somewhere between the two.
    """
    points = [point for point in profile.points if point.plan.key == plan.key]
    rates = [point.flops / point.seconds.median for point in points if point.constant == "matmul"]
    copies = {point.bytes: point.bytes / point.seconds.median for point in points if point.constant == "bandwidth"}
    common = copies.keys() & _copied_by_all(profile, plan)
    if not rates or not common:
        return None
    rate, bandwidth = max(rates), max(copies.values()) if cached else copies[max(common)]
    total = 0.0
    for operation in trace.operations_under(plan.precision):
        if operation.kind != "view":
            moved = operation.read_bytes.at(batch_size) + operation.written_bytes.at(batch_size)
            total += operation.count * max(operation.flops.at(batch_size) / rate, moved / bandwidth)
    return total


def _copied_by_all(profile: Profile, plan: Plan) -> set[float]:
    """Bytes of working sets that every plan of this one's device and precision copied."""
    sizes: dict[object, set[float]] = {}
    for point in profile.points:
        if (point.plan.device, point.plan.precision) == (plan.device, plan.precision) and point.constant == "bandwidth":
            sizes.setdefault(point.plan.key, set()).add(point.bytes)
    return set.intersection(*sizes.values()) if sizes else set()


def shares(profile: Profile, trace: Trace, batch_size: int) -> Document:
    """Of the estimated step in fp32 on one thread, by class of operation; empty without a profile of it."""
    prices = prices_for(profile, Plan("cpu", "fp32", 1), trace.mode)
    if prices is None or prices.context is None:
        return {}
    parts = features_at(trace, prices, batch_size)
    names = ("arithmetic", "light", "between", "optimizer", "page faults")
    return {name: part / sum(parts) for name, part in zip(names, parts, strict=True)}
