"""What one job leaves to the next of the same process: nothing."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from probes.microtrain.failures import Failure
from probes.microtrain.measure import MeasureSession
from probes.microtrain.measuring.measure_job import MeasureJob
from probes.microtrain.protocol import Desk, Document, serve_jobs
from probes.microtrain.step import make_optimizer
from probes.workload.description import Plan, Workload
from probes.workload.models import parse_model

SMALL = Workload(parse_model({"layers": [{"type": "linear", "out": 2}], "input_shape": [4]}), 8)


@contextmanager
def nothing_collected() -> Iterator[None]:
    """But on request: beside all that torch brings, what one job makes is too little for the collector to look."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.parametrize("fails", [False, True])
def test_the_next_job_finds_no_model_of_the_last_one_on_a_device(
    monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    models: list[weakref.ref[torch.nn.Module]] = []
    found: list[bool] = []

    def hold(_job: Document, _desk: Desk) -> Document:
        found.extend(model() is not None for model in models)
        holder: dict[str, Any] = {"model": torch.nn.Linear(1, 1)}
        holder["itself"] = holder
        models.append(weakref.ref(holder["model"]))
        if fails:
            raise Failure("failed", "It failed.")
        return {}

    said: list[Document] = []
    with nothing_collected():
        serve_jobs([json.dumps({"kind": "hold"}).encode()] * 2, {"hold": hold}, said.append)
    assert [event["event"] for event in said] == ["failed" if fails else "result"] * 2
    assert found == [False]


def test_an_answer_waits_for_no_cleaning_up(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    monkeypatch.setattr("probes.microtrain.protocol._clean_up", lambda: log.append("cleaned"))
    kinds = {"say": lambda job, desk: {}}
    serve_jobs([b'{"kind": "say"}'] * 2, kinds, lambda event: log.append(event["event"]))
    assert log == ["result", "cleaned"] * 2


def test_a_measurement_that_is_over_holds_itself_by_no_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("probes.microtrain.processes.fresh_processes.is_prepared", lambda: False)
    plans = (Plan("cpu", "fp32", 1), Plan("cpu", "fp32"))  # the second one's threads are waited for
    make_optimizer("sgd", torch.nn.Linear(1, 1))  # what torch imports with the first one leaves cycles of its own
    with nothing_collected():
        session = MeasureSession(MeasureJob(SMALL, plans, (8,), 0.5, None), lambda fraction, message: None)
        session.run()
        assert session.result()["measurements"][0]["outcome"] == "ok"
        model = weakref.ref(session._bench.build().module)
        del session
        assert model() is None
