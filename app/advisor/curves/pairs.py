"""Which plans to compare over the batch: the choices that people face, not every pair."""

from __future__ import annotations

from collections.abc import Sequence

from probes.workload.description import Plan, Precision

Pair = tuple[Plan, Plan]


def pairs_worth_telling(plans: Sequence[Plan], best: Plan | None) -> tuple[Pair, ...]:
    """(from, to), the cheaper plan first: one thread against most threads; fp32 against bf16 with either and with the
    recommended ones; the recommended plan of the CPU against fewer and more threads; the CPU against each device; each
    device's fp32 against its lower precisions; one device against the next. plans: without settings, whose gain is
    known at one batch size.

    best: the recommended plan; the CPU plan that devices are compared with is the best one, if it is one.
    """
    cpu = [plan for plan in plans if plan.is_cpu]
    pairs = [*_thread_pairs(cpu), *_precision_pairs(cpu, best), *_neighbour_pairs(cpu, best)]
    devices = tuple(dict.fromkeys(plan.device for plan in plans if not plan.is_cpu))
    baseline = _cpu_baseline(cpu, best)
    for device in devices:
        on_device = [plan for plan in plans if plan.device == device]
        if baseline is not None:
            pairs += [(baseline, plan) for plan in on_device]
        pairs += [(on_device[0], plan) for plan in on_device[1:] if on_device[0].precision == "fp32"]
    pairs += _device_pairs(plans, devices, best)
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


def _cpu_baseline(cpu: Sequence[Plan], best: Plan | None) -> Plan | None:
    if best is not None and best.is_cpu:
        return best
    fp32 = [plan for plan in cpu if plan.precision == "fp32"] or list(cpu)
    return max(fp32, key=lambda plan: plan.threads or 0, default=None)


def _device_pairs(plans: Sequence[Plan], devices: Sequence[str], best: Plan | None) -> list[Pair]:
    precision: Precision = best.precision if best is not None and not best.is_cpu else "fp32"
    rows = [plan for device in devices for plan in plans if plan.device == device and plan.precision == precision]
    return [(rows[0], plan) for plan in rows[1:]]


def _once(pairs: Sequence[Pair]) -> tuple[Pair, ...]:
    return tuple({(first.key, second.key): (first, second) for first, second in pairs}.values())
