"""What comes after the steps, tidies up, or fails late costs nothing that was measured."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from probes.microtrain.measure import MeasureSession
from probes.microtrain.measuring import contest
from probes.microtrain.measuring.measure_job import MeasureJob
from probes.microtrain.measuring.overhead_meter import OverheadMeter
from probes.microtrain.measuring.workbench import StepRun
from probes.microtrain.processes import fresh_processes
from probes.workload.description import Plan, Workload
from probes.workload.models import parse_model, python_model
from tests.probes.microtrain import brief

ONE, TWO = Plan("cpu", "fp32", 1), Plan("cpu", "fp32", 2)
SMALL = Workload(parse_model({"layers": [{"type": "linear", "out": 2}], "input_shape": [4]}), 8)


def outcomes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str | None]]:
    """With their reasons; in this process, as a device's plans run."""
    monkeypatch.setattr("probes.microtrain.processes.fresh_processes.is_prepared", lambda: False)
    brief.be_brief(monkeypatch.setattr)
    job = MeasureJob(SMALL, (ONE, TWO), (8,), brief.SECONDS, None)
    session = MeasureSession(job, lambda fraction, message: None)
    session.run()
    return [(row["outcome"], row["reason"]) for row in session.result()["measurements"]]


def test_overheads_that_cannot_be_measured_leave_the_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of a batch may not fit beside a step that just does."""
    asked: list[object] = []

    def measure(meter: OverheadMeter, run: StepRun, seconds: float) -> Any:
        asked.append(run)
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(OverheadMeter, "measure", measure)
    assert outcomes(monkeypatch) == [("ok", None)] * 2
    assert len(asked) == 2


def test_memory_that_cannot_be_let_go_of_costs_no_other_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an assertion on the device that, too, is answered with the same error (test_lost_device.py)."""
    calm = StepRun.__call__

    def step(run: StepRun, executions: int) -> None:
        if run.plan == TWO:
            raise RuntimeError("CUDA error: device-side assert triggered")
        calm(run, executions)

    def empty_cache() -> None:
        emptied.append(1)
        raise RuntimeError("CUDA error: device-side assert triggered")

    emptied: list[int] = []
    monkeypatch.setattr(StepRun, "__call__", step)
    monkeypatch.setattr("probes.microtrain.measuring.device_cache.torch.cuda.is_initialized", lambda: True)
    monkeypatch.setattr("probes.microtrain.measuring.device_cache.torch.cuda.empty_cache", empty_cache)
    ran, failed = outcomes(monkeypatch)
    assert ran == ("ok", None)
    assert failed[0] == "failed"
    assert "device-side assert" in (failed[1] or "")
    assert emptied


DIES_LATE = """
import os, signal, time
import torch

class DiesLate(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.calls = torch.nn.Linear(4, 2), 0
    def forward(self, x):
        time.sleep(0.01)
        if torch.is_autocast_enabled("cpu"):
            self.calls += 1
            if self.calls > 12:
                os.kill(os.getpid(), signal.SIGKILL)
        return self.inner(x)

def build():
    return DiesLate(), lambda size: (torch.randn(size, 4), torch.zeros(size, dtype=torch.long))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone")
def test_a_plan_whose_process_is_killed_late_keeps_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the kernel, as another plan's step took the memory. It was told as one that cannot run."""
    name = f"dies_late_{os.getpid()}_{time.monotonic_ns()}"
    (tmp_path / f"{name}.py").write_text(DIES_LATE)
    monkeypatch.chdir(tmp_path)
    fresh_processes.prepare()
    fresh_processes.wait_until_ready()
    try:
        plans = (ONE, Plan("cpu", "bf16", 1))
        job = MeasureJob(Workload(python_model(f"{name}:build"), 4), plans, (4,), brief.SECONDS, None)
        session = MeasureSession(job, lambda fraction, message: None)
        brief.be_brief(monkeypatch.setattr)
        running = session._contest
        monkeypatch.setattr(contest, "is_precise", lambda _: any(entry.retired for entry in running.entries))
        session.run()
    finally:
        fresh_processes.end()
    rows = session.result()["measurements"]
    assert [(row["outcome"], row["reason"]) for row in rows] == [("ok", None)] * 2
    assert all(row["memory"]["process_bytes"] for row in rows)
    assert any(entry.retired for entry in session._contest.entries)
