"""Measurements by real processes of plans, and models that fail in them: what tests of these stand on."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from probes.measurement import Measurement
from probes.microtrain.measure import MeasureSession
from probes.microtrain.measuring.measure_job import parse_measure_job
from probes.microtrain.measuring.plan_process import PlanProcess
from probes.microtrain.processes import fresh_processes
from probes.workload.description import Plan, Workload
from probes.workload.models import parse_model, python_model
from tests.probes.microtrain.brief import SECONDS, be_brief

DENSE = Workload(
    parse_model({"layers": [{"type": "linear", "out": 64}, "relu", {"type": "linear", "out": 3}], "input_shape": [16]}),
    8,
)
ONE, BF16 = Plan("cpu", "fp32", 1), Plan("cpu", "bf16", 1)

FAULTS = """
import multiprocessing, os, pathlib, signal, time
import torch

class Fails(torch.nn.Module):
    def __init__(self, how):
        super().__init__()
        self.inner, self.how, self.calls = torch.nn.Linear(4, 2), how, 0
    def forward(self, x):
        self.calls += 1
        if torch.is_autocast_enabled("cpu") and self.calls > 1:
            self.how()
        return self.inner(x)

class Odd(Exception):
    def __init__(self, one, two):  # cannot be sent from process to process
        super().__init__(one)

def odd(): raise Odd("the sentence", 2)
def dies(): os.kill(os.getpid(), signal.SIGKILL)
def batch(size): return torch.randn(size, 4), torch.zeros(size, dtype=torch.long)
def raising(): return Fails(odd), batch
def killed(): return Fails(dies), batch
def nothing(): return 3
class Turns(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 2)
    def forward(self, x):
        x.unsqueeze_(1)
        return self.inner(x)
def turning(): return Turns(), batch, lambda output, given: torch.nn.functional.cross_entropy(output[:, 0], given[1])
def with_workers():
    worker = multiprocessing.get_context("fork").Process(target=int)
    worker.start()
    worker.join()
    return torch.nn.Sequential(torch.nn.Linear(4, 2)), batch
class Slow(torch.nn.Linear):
    def forward(self, x):
        pathlib.Path("stepping").touch()
        while not pathlib.Path("enough").exists():
            time.sleep(0.01)
        return super().forward(x)
def slow_to_step(): return Slow(4, 2), batch
def slow_to_build():
    time.sleep(0.6)
    return torch.nn.Sequential(torch.nn.Linear(4, 2)), batch
"""


def job(workload: Workload, *plans: Plan, seconds: float = SECONDS, sizes: tuple[int, ...] = (8,), **more: Any) -> Any:
    document = {
        "kind": "measure",
        "plans": [plan.to_json() for plan in plans],
        "batch_sizes": list(sizes),
        "seconds": seconds,
        "memory_limit_bytes": None,
        "apart": True,
        **more,
    }
    return parse_measure_job(document, workload)


def measured(*arguments: Any, **more: Any) -> tuple[list[Measurement], MeasureSession]:
    session = MeasureSession(job(*arguments, **more), lambda share, message: None)
    session.run()
    return [Measurement.from_json(row) for row in session.result()["measurements"]], session


@pytest.fixture(scope="module", autouse=True)
def ending() -> Iterator[None]:
    yield
    fresh_processes.end()


@pytest.fixture(autouse=True)
def prepared(ending: None) -> None:
    """A measurement whose plans are not forked ends what forks."""
    fresh_processes.prepare()
    fresh_processes.wait_until_ready()


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    be_brief(monkeypatch.setattr)


@pytest.fixture
def faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"faults_{os.getpid()}_{time.monotonic_ns()}"
    (tmp_path / f"{name}.py").write_text(FAULTS)
    monkeypatch.chdir(tmp_path)
    return name


def of(target: str) -> Workload:
    return Workload(python_model(target), 4)


def pid_of(run: PlanProcess) -> int:
    assert run.process.pid is not None
    return run.process.pid


def processes_of(session: MeasureSession) -> set[int]:
    """Identities of the processes that forked plans ran in; all plans have to have been forked."""
    runs = list(session._runs.values())
    forked = [run for run in runs if isinstance(run, PlanProcess)]
    assert forked == runs != []
    return {id(run.process) for run in forked}
