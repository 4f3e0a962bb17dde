"""What starting a device takes is not on the time for steps. The device is a fake: only when it starts counts."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from probes.measurement import MemoryPeak
from probes.microtrain.measure import LEAST_SHARE, MeasureSession
from probes.microtrain.measuring.measure_job import MeasureJob
from probes.microtrain.measuring.workbench import StepRun, Workbench
from probes.workload.description import Plan, Workload
from probes.workload.models import parse_model
from tests.probes.microtrain.fake_runs import FakeClock

CONTEXT_SECONDS, STEP_SECONDS = 0.6, 0.002
CARD = Plan("cuda:0", "fp32"), Plan("cuda:0", "bf16")


@pytest.fixture
def slow_card(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """Whose context takes longer than all the time that there is."""
    clock = FakeClock()

    def start(bench: Workbench, device: str) -> Any:
        if device not in bench._replicas:
            clock.now += CONTEXT_SECONDS
            bench._replicas[device] = plain(bench, "cpu")
        return bench._replicas[device]

    def step(run: StepRun, executions: int) -> None:
        run._bench.replica(run.plan.device)
        clock.now += executions * STEP_SECONDS

    plain = Workbench.replica
    monkeypatch.setattr(Workbench, "replica", start)
    monkeypatch.setattr(StepRun, "__call__", step)
    monkeypatch.setattr(StepRun, "watched", lambda run: nullcontext())
    monkeypatch.setattr(StepRun, "setting", lambda run: nullcontext())
    monkeypatch.setattr(StepRun, "memory", lambda run: MemoryPeak())
    monkeypatch.setattr(MeasureSession, "_measure_overheads", lambda session: None)
    monkeypatch.setattr("probes.microtrain.measure.why_impossible", lambda plan, cores: None)
    monkeypatch.setattr("probes.microtrain.measure.time", clock)
    return clock


def test_a_device_that_starts_slowly_is_measured_all_the_same(slow_card: FakeClock) -> None:
    """On an H100 one step of one plan was all that a limit of five seconds had time for, and told as its step time."""
    workload = Workload(parse_model({"layers": [{"type": "linear", "out": 2}], "input_shape": [4]}), 8)
    session = MeasureSession(MeasureJob(workload, CARD, (8,), 0.5, None), lambda fraction, message: None)
    session._contest.clock = slow_card.perf_counter
    session.run()
    rows = session.result()["measurements"]
    assert [row["outcome"] for row in rows] == ["ok", "ok"]
    for row in rows:
        assert row["steps"] > 2
        assert row["step"]["median"] < CONTEXT_SECONDS * LEAST_SHARE
