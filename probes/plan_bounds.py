"""How much a profile may hold of one plan, or of one device: what an estimate costs grows with it, and partly with its
square."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING

from probes import bounds
from probes.checked import Refused
from probes.trace import Trace

if TYPE_CHECKING:
    from probes.profile import Profile


def check_plans(profile: Profile) -> None:
    """How many plans there are, and how much each has; no step twice. Raises Refused."""
    _check_steps(profile)
    points = _sums((point.plan.key, 1) for point in profile.points)
    networks = _sums((network.plan.key, 1) for network in profile.networks)
    operations = _sums((network.plan.key, _operations_in(network.trace)) for network in profile.networks)
    costs = _sums((context.plan.key, len(context.costs)) for context in profile.contexts)
    # What a device's host does is looked for among the steps of all plans there.
    on_hosts = _sums(
        (context.plan.device, len(context.costs))
        for context in profile.contexts
        if context.clock == "host" and not context.plan.is_cpu
    )
    if len(points.keys() | networks.keys() | costs.keys()) > bounds.MAX_PROFILE_PLANS:
        raise Refused(f"it speaks of more than {bounds.MAX_PROFILE_PLANS} plans")
    for found, most, what in (
        (points, bounds.MAX_PLAN_POINTS, "points has more than {} entries"),
        (networks, bounds.MAX_PLAN_NETWORKS, "networks has more than {} entries"),
        (operations, bounds.MAX_PLAN_OPERATIONS, "the traces of networks have more than {} operations"),
        (costs, bounds.MAX_PLAN_COSTS, "contexts has more than {} costs"),
    ):
        if max(found.values(), default=0) > most:
            raise Refused(f"{what.format(f'{most:,}')} for one plan")
    if max(on_hosts.values(), default=0) > bounds.MAX_PLAN_COSTS:
        raise Refused(f"contexts has more than {bounds.MAX_PLAN_COSTS:,} costs of one device's host")


def _check_steps(profile: Profile) -> None:
    steps = [(each.name, each.batch_size, each.plan.key, each.trace.mode) for each in profile.networks]
    clocked = [(each.network, each.batch_size, each.plan.key, each.mode, each.clock) for each in profile.contexts]
    for name, keys in (("networks", steps), ("contexts", clocked)):
        if len(set(keys)) < len(keys):
            raise Refused(f"{name} has one step of a plan twice")


def _operations_in(trace: Trace) -> int:
    """The most that any way to run the step has."""
    ways = [trace, *([trace.device] if trace.device is not None else [])]
    return max(max(len(way.operations), len(way.autocast_operations)) for way in ways)


def _sums(rows: Iterable[tuple[Hashable, int]]) -> Counter[Hashable]:
    found: Counter[Hashable] = Counter()
    for key, number in rows:
        found[key] += number
    return found
