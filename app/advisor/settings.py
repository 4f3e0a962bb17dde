"""Settings beside the plan that have evidence here; empty where there is none."""

from __future__ import annotations

from typing import Any

from app.advisor.recommendation import Option
from probes.workload.description import Plan


def settings_for(best: Option | None, *, pins: bool) -> dict[str, Any]:
    """What to set, as names that a shell or a DataLoader takes. Only what follows from measurements of this machine.
    pins: batches should come from pinned memory (app.advisor.pinning)."""
    if best is None:
        return {}
    return {**_environment(best.plan), **_changes(best.plan), **({"pin_memory": True} if pins else {})}


def _environment(plan: Plan) -> dict[str, Any]:
    """torch reads OMP_NUM_THREADS when it starts; set_num_threads in the snippet says the same from inside. The rest is
    the plan's own, which paid when it was measured."""
    threads = {"OMP_NUM_THREADS": str(plan.threads)} if plan.is_cpu and plan.threads is not None else {}
    environment = {**threads, **plan.environment}
    return {"environment": environment} if environment else {}


def _changes(plan: Plan) -> dict[str, Any]:
    """By torch's own names."""
    named = {"memory_format": "channels_last", "compile": True, "set_flush_denormal": True}
    wanted = (plan.channels_last, plan.compiled, plan.flush_denormal)
    return {name: value for (name, value), is_set in zip(named.items(), wanted, strict=True) if is_set}
