"""A process that traces one model after another does not grow by what torch remembers of each."""

from __future__ import annotations

import pytest
from torch._subclasses.fake_tensor import FakeTensorMode

from probes.microtrain.traces import autocast_beside
from probes.microtrain.tracing import Untraceable, trace_workload
from probes.workload.description import Workload
from probes.workload.models import parse_model

DENSE = {"layers": [{"type": "linear", "out": 8}, "relu", {"type": "linear", "out": 2}], "input_shape": [4]}


def remembered() -> int:
    return FakeTensorMode.cache_info().size


def test_nothing_is_left_of_a_trace() -> None:
    workload = Workload(parse_model(DENSE), 4)
    assert trace_workload(workload).operations
    assert remembered() == 0
    assert autocast_beside._trace((workload.to_json(), (16, 32))) is not None
    assert remembered() == 0


def test_nor_of_one_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        assert remembered() > 0
        raise Untraceable("no such trace")

    monkeypatch.setattr("probes.microtrain.tracing.check_growth", refuse)
    with pytest.raises(Untraceable):
        trace_workload(Workload(parse_model(DENSE), 4))
    assert remembered() == 0
