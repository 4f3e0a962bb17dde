"""What comes before the first step is told: the next job of the model has to go through it again."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from probes.microtrain.measure import MeasureSession
from probes.microtrain.measuring.measure_job import MeasureJob
from probes.microtrain.measuring.plan_process import PlanProcess
from probes.microtrain.measuring.workbench import Workbench
from probes.microtrain.models import build_model
from probes.microtrain.processes import fresh_processes
from probes.workload.description import ModelDescription, Plan, Workload
from probes.workload.models import parse_model, python_model
from tests.probes.microtrain.fake_runs import FakeClock

ONE, BF16 = Plan("cpu", "fp32", 1), Plan("cpu", "bf16", 1)
DENSE = Workload(parse_model({"layers": [{"type": "linear", "out": 3}], "input_shape": [16]}), 8)
BERT = Workload(parse_model({"huggingface": {"model_type": "bert"}, "task": "text-classification"}), 2)
BUILDING_SECONDS = 0.3
SLOW_TO_BUILD = f"""
import time, torch
def build():
    time.sleep({BUILDING_SECONDS})
    return torch.nn.Linear(4, 2), lambda size: (torch.randn(size, 4), torch.zeros(size, dtype=torch.long))
"""

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone")


@pytest.fixture
def forks() -> Iterator[None]:
    fresh_processes.prepare()
    fresh_processes.wait_until_ready()
    yield
    fresh_processes.end()


@on_linux
@pytest.mark.parametrize(
    ("plan", "apart"), [(ONE, True), (ONE, False), (Plan("cpu", "fp32", 1, channels_last=True), False)],
    ids=["processes of their own", "a shared one", "the measuring process"],
)  # fmt: skip
def test_a_job_says_what_the_next_one_takes_before_its_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forks: None, plan: Plan, *, apart: bool
) -> None:
    name = f"slow_to_build_{os.getpid()}_{time.monotonic_ns()}"
    (tmp_path / f"{name}.py").write_text(SLOW_TO_BUILD)
    monkeypatch.chdir(tmp_path)
    workload = Workload(python_model(f"{name}:build"), 4)
    session = MeasureSession(MeasureJob(workload, (plan,), (4,), 2.0, 2**40, apart=apart), lambda *_: None)
    session.run()
    result = session.result()
    assert [row["outcome"] for row in result["measurements"]] == ["ok"]
    assert result["to_begin_seconds"] >= BUILDING_SECONDS


@on_linux
def test_a_plan_that_began_as_the_trial_knows_what_beginning_took(forks: None) -> None:
    """It goes on in another process as others do: where the time does for beginning once more. It is what is foretold
    to be the fastest."""
    job = MeasureJob(DENSE, (ONE, BF16), (8,), 60.0, None, apart=True, expected_seconds=(1.0, 0.01))
    session = MeasureSession(job, lambda *_: None)
    session._forks = session._fork()
    assert session._forks is not None
    assert session._forks.first_step_of == (BF16, 8)
    entries = session._make_entries()
    runs: list[Any] = [session._runs[id(entry)] for entry in entries]
    ahead = {run.plan.key: entry.begun_ahead_seconds for run, entry in zip(runs, entries, strict=True)}
    (trial,) = (run for run in runs if isinstance(run, PlanProcess) and run.pid is not None)
    begun = trial.seconds_to_start
    for run in runs:
        run.drop()
    session._forks.end()
    assert ahead.pop(trial.plan.key) > begun > 0
    assert list(ahead.values()) == [0.0]


def test_imports_and_a_device_s_context_come_once_and_are_not_told_of_the_next_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = FakeClock()

    def taking(seconds: float, work: Any = lambda *_: None) -> Any:
        def work_on(*arguments: Any) -> Any:
            clock.now += seconds
            return work(*arguments)

        return work_on

    def build(_model: ModelDescription) -> Any:
        return build_model(DENSE.model)

    place = "probes.microtrain.measuring.workbench"
    monkeypatch.setattr(f"{place}.time", clock)
    monkeypatch.setattr(f"{place}.import_transformers", taking(5.0))
    monkeypatch.setattr(f"{place}.build_model", taking(2.0, build))
    monkeypatch.setattr(f"{place}.synchronize", taking(1.0))  # before and after the weights' way there
    bench = Workbench(BERT, frozenset(["meta"]))
    replica = bench.replica("meta")
    assert next(replica.module.parameters()).device == torch.device("meta")
    assert bench.layout_seconds == 2.0 + 1.0
    assert replica.startup_seconds == 2.0
