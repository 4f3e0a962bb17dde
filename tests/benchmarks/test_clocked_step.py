"""A benchmark's step runs for itself, in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarks.clocked_step import Clocked, clock_step
from benchmarks.workloads import WORKLOADS
from probes.microtrain.processes.fresh_processes import end, run_fresh
from tests.app.advisor.build import ONE

ROW = next(row for row in WORKLOADS if row.name == "digits")


def test_a_step_is_timed_and_clocked_in_a_process_of_its_own() -> None:
    found: Clocked = run_fresh(clock_step, (ROW.name, ROW.workload(), ONE, 0.1), lambda: None)
    end()
    context = found.context
    assert found.step > 0
    assert found.page_faults >= 0
    assert (context.network, context.batch_size, context.plan) == (ROW.name, ROW.batch_sizes[0], ONE)
    assert {cost.operation.kind for cost in context.costs} >= {"matmul", "elementwise"}


@pytest.mark.parametrize("module", ["clocked_step", "watched_steps"])
def test_what_runs_in_forks_imports_nothing_of_the_service(module: str) -> None:
    """A heap that is full of a web server hands steps other memory than a user's run of Python does."""
    look = (
        f"import sys, benchmarks.{module}; print(sorted(name for name in sys.modules if name.split('.')[0] == 'app'))"
    )
    ran = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
