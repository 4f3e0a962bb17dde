"""A step's error that ends a device's work is told of its own plan alone, and the process is not used again.

The card is a fake: it answers everything with its error from then on, as CUDA does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from app.advisor.tried import OUT_OF_TIME
from probes.measurement import MemoryPeak
from probes.microtrain.measure import MeasureSession, measure_workload
from probes.microtrain.measuring.lost_device import lost_to
from probes.microtrain.measuring.measure_job import MeasureJob
from probes.microtrain.measuring.workbench import StepRun, Workbench
from probes.workload.description import Plan, Workload
from probes.workload.models import parse_model
from tests.probes.microtrain import brief

SMALL = Workload(parse_model({"layers": [{"type": "linear", "out": 2}], "input_shape": [4]}), 8)
FP32, BF16, FP16 = Plan("cuda:0", "fp32"), Plan("cuda:0", "bf16"), Plan("cuda:0", "fp16")
CPU = Plan("cpu", "fp32", 1)
STEP_SECONDS = 0.002


class Card:
    """breaks: whether this run of steps is its end. tries: runs that were asked for after that."""

    def __init__(self) -> None:
        self.breaks: Callable[[StepRun, int], bool] = lambda run, runs: False
        self.lost: RuntimeError | None = None
        self.runs = self.tries = 0

    def step(self, run: StepRun, executions: int) -> None:
        run._bench.replica(run.plan.device)
        if run.plan.is_cpu:
            time.sleep(executions * STEP_SECONDS)
            return
        self.tries += self.lost is not None
        self.synchronize(torch.device("cuda"))
        self.runs += 1
        if self.breaks(run, self.runs):
            self.lost = RuntimeError("CUDA error: device-side assert triggered")
            raise RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`")
        time.sleep(executions * STEP_SECONDS)

    def synchronize(self, device: torch.device) -> None:
        if device.type == "cuda" and self.lost is not None:
            raise self.lost


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Card:
    def start(bench: Workbench, device: str) -> Any:
        if device not in bench._replicas:
            bench._replicas[device] = plain(bench, "cpu")
        return bench._replicas[device]

    plain, card = Workbench.replica, Card()
    monkeypatch.setattr(Workbench, "replica", start)
    monkeypatch.setattr(StepRun, "__call__", lambda run, executions: card.step(run, executions))
    monkeypatch.setattr(StepRun, "watched", lambda run: nullcontext())
    monkeypatch.setattr(StepRun, "setting", lambda run: nullcontext())
    monkeypatch.setattr(StepRun, "memory", lambda run: MemoryPeak())
    monkeypatch.setattr(MeasureSession, "_measure_overheads", lambda session: None)
    monkeypatch.setattr("probes.microtrain.measure.why_impossible", lambda plan, cores: None)
    monkeypatch.setattr("probes.microtrain.measuring.lost_device.synchronize", card.synchronize)
    monkeypatch.setattr("probes.microtrain.processes.fresh_processes.is_prepared", lambda: False)
    brief.be_brief(monkeypatch.setattr)
    return card


def measure(*plans: Plan) -> tuple[list[dict[str, Any]], bool]:
    """A row each, and whether the process was ended with them."""
    ended: list[object] = []
    job = MeasureJob(SMALL, plans, (8,), brief.SECONDS, None)
    found = measure_workload(job, lambda fraction, message: None, ended.append)
    assert ended in ([], [found])
    return found["measurements"], bool(ended)


def test_a_device_that_a_step_ended_costs_its_own_plan_alone(card: Card) -> None:
    card.breaks = lambda run, runs: run.plan == BF16
    (before, culprit, after, beside), ended = measure(FP32, BF16, FP16, CPU)
    assert (before["outcome"], culprit["outcome"], beside["outcome"]) == ("ok", "failed", "ok")
    assert "device-side assert" in culprit["reason"]  # not what a library said that came after it
    assert after["outcome"] == "failed"
    assert OUT_OF_TIME in after["reason"].lower()  # it was not reached
    assert ended
    assert card.tries == 0


def test_what_was_measured_before_a_device_was_lost_stands(card: Card) -> None:
    card.breaks = lambda run, runs: run.plan == BF16 and runs > 12
    rows, ended = measure(FP32, BF16)
    assert [row["outcome"] for row in rows] == ["ok", "ok"]
    assert ended
    assert card.tries == 0


def test_a_device_that_works_is_used_again(card: Card) -> None:
    assert not measure(FP32, BF16)[1]


def test_a_device_without_memory_for_more_is_not_lost(card: Card) -> None:
    card.lost = RuntimeError("CUDA error: out of memory")
    assert lost_to("cuda:0") is None
    card.lost = RuntimeError("CUDA error: an illegal memory access was encountered")
    assert lost_to("cuda:0") is card.lost
    assert lost_to("cpu") is None
