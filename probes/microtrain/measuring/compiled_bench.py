"""The workbench whose model was compiled, kept from one job to the next: compiling takes longer than measuring."""

from __future__ import annotations

from probes.microtrain.measuring.workbench import Workbench
from probes.workload.description import Plan, Workload

_kept: list[Workbench] = []  # one at most


def changes_of(plans: tuple[Plan, ...]) -> tuple[str, ...]:
    """Those that all plans have; none where they differ."""
    found = {plan.changes for plan in plans}
    return found.pop() if len(found) == 1 else ()


def bench_for(workload: Workload, plans: tuple[Plan, ...]) -> Workbench:
    """The last one, where its model was compiled for just this; else a new one."""
    devices, changes = frozenset(plan.device for plan in plans), changes_of(plans)
    for bench in _kept:
        if (bench.workload, bench.devices, bench.changes) == (workload, devices, changes):
            return bench
    _kept.clear()
    bench = Workbench(workload, devices, changes)
    if "compiled" in changes:
        _kept.append(bench)
    return bench
