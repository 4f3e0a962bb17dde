"""Which plans to compare over the batch: the choices that people face, not every pair."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from types import MappingProxyType

from probes.workload.description import Plan, Precision

Pair = tuple[Plan, Plan]
# The plans of the CPU that a plan on a device is compared with (app.advisor.curves.rivals).
Rivals = Callable[[Plan], Iterable[Plan]]


def pairs_worth_telling(
    plans: Sequence[Plan],
    best: Plan | None,
    rivals: Rivals = lambda on_device: (),
    kinds: Mapping[str, Hashable] = MappingProxyType({}),
    ranked: Sequence[Plan] = (),
) -> tuple[Pair, ...]:
    """(from, to), the cheaper plan first: one thread against most threads; fp32 against bf16 with either and with the
    recommended ones; the recommended plan of the CPU against fewer and more threads, and against what torch does by
    itself (all threads, fp32); each plan on a device against its
    rivals on the CPU; each device's fp32 against its lower precisions; the first device against each other one. plans:
    without settings, whose gain is known at one batch size, and each on one card of those that are alike. best: the
    recommended plan. kinds: by device, the same for cards that are alike, which are one device here. ranked: at the
    batch asked for, best first.
    """
    cpu = [plan for plan in plans if plan.is_cpu]
    pairs = [*_thread_pairs(cpu), *_precision_pairs(cpu, best)]
    pairs += [*_neighbour_pairs(cpu, best), *_default_pairs(cpu, best)]
    devices: dict[Hashable, list[Plan]] = {}
    for plan in plans:
        if not plan.is_cpu:
            devices.setdefault(kinds.get(plan.device, plan.device), []).append(plan)
    for on_device in devices.values():
        pairs += [(rival, plan) for plan in on_device for rival in rivals(plan)]
        plain = next((plan for plan in on_device if plan.precision == "fp32"), None)
        pairs += [(plain, plan) for plan in on_device if plain is not None and plan is not plain]
    pairs += _device_pairs(devices.values(), best, ranked)
    return _once(pairs)


def plans_of(pairs: Sequence[Pair], best: Plan | None) -> tuple[Plan, ...]:
    """Every plan in the pairs once, the recommended one first."""
    found = {plan.key: plan for plan in ([best] if best is not None else [])}
    for pair in pairs:
        found.update({plan.key: plan for plan in pair if plan.key not in found})
    return tuple(found.values())


def _thread_pairs(cpu: Sequence[Plan]) -> list[Pair]:
    pairs: list[Pair] = []
    for precision in dict.fromkeys(plan.precision for plan in cpu):
        rows = sorted((plan for plan in cpu if plan.precision == precision), key=lambda plan: plan.threads or 0)
        if len(rows) > 1:
            pairs.append((rows[0], rows[-1]))
    return pairs


def _neighbour_pairs(cpu: Sequence[Plan], best: Plan | None) -> list[Pair]:
    """The recommended plan, when it has neither the fewest threads nor the most, against those that have."""
    if best is None or not best.is_cpu:
        return []
    rows = sorted((plan for plan in cpu if plan.precision == best.precision), key=lambda plan: plan.threads or 0)
    if len(rows) < 3 or best.threads in (rows[0].threads, rows[-1].threads):
        return []
    middle = next((plan for plan in rows if plan.threads == best.threads), None)
    return [] if middle is None else [(rows[0], middle), (middle, rows[-1])]


def _default_pairs(cpu: Sequence[Plan], best: Plan | None) -> list[Pair]:
    """The recommended plan against torch's own; where they have their threads or their precision in common it is told
    already."""
    plain = max((plan for plan in cpu if plan.precision == "fp32"), key=lambda plan: plan.threads or 0, default=None)
    mine = next((plan for plan in cpu if best is not None and plan.key == best.key), None)
    if plain is None or mine is None or mine.threads == plain.threads or mine.precision == plain.precision:
        return []
    return [(mine, plain)]


def _precision_pairs(cpu: Sequence[Plan], best: Plan | None) -> list[Pair]:
    """With the fewest threads, the most, and the recommended ones."""
    pairs: list[Pair] = []
    counts = sorted({plan.threads or 0 for plan in cpu})
    recommended = [best.threads or 0] if best is not None and best.is_cpu else []
    for threads in dict.fromkeys((counts[0], counts[-1], *recommended) if counts else ()):
        rows = {plan.precision: plan for plan in cpu if (plan.threads or 0) == threads}
        if "fp32" in rows:
            pairs += [(rows["fp32"], plan) for precision, plan in rows.items() if precision != "fp32"]
    return pairs


def _device_pairs(devices: Collection[Sequence[Plan]], best: Plan | None, ranked: Sequence[Plan]) -> list[Pair]:
    """In the recommended plan's precision; of a device that lacks it the plan that is best there."""
    precision: Precision = best.precision if best is not None and not best.is_cpu else "fp32"
    places = {plan.key: place for place, plan in enumerate(ranked)}

    def place(plan: Plan) -> tuple[bool, int]:
        return (plan.precision != precision, places.get(plan.key, len(places)))

    rows = [min(on_device, key=place) for on_device in devices]
    return [(rows[0], plan) for plan in rows[1:]]


def _once(pairs: Sequence[Pair]) -> tuple[Pair, ...]:
    return tuple({(first.key, second.key): (first, second) for first, second in pairs}.values())
