"""A script to paste: the recommended plan, set up and running."""

from __future__ import annotations

from probes.workload.description import Plan, Workload


def write_snippet(workload: Workload, plan: Plan) -> str:
    """Python that runs as it stands."""
    del workload, plan
    return "import torch\n"
