"""What issues a step's operations is counted, of real steps and of traces alike."""

from __future__ import annotations

import cProfile
import gc
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from probes.issued import Issued
from probes.microtrain.calibration.operation_clock import record_step
from probes.microtrain.measuring.workbench import Workbench
from probes.microtrain.step import applied
from probes.microtrain.traces.issuing import IssueCounter
from probes.microtrain.traces.recording import Recorder
from probes.microtrain.tracing import trace_workload
from probes.workload.description import Mode, Plan, Precision, Workload
from probes.workload.models import parse_model, python_model

LAYERS: list[Any] = [{"type": "linear", "out": 8}, "relu", {"type": "linear", "out": 3}]
WIDE = torch.randn(6, 6)


def counted(action: Callable[[], object]) -> tuple[Issued, int]:
    """What issued the operations, and how many there were, the second time: with the first torch may import much."""
    for _ in range(2):
        counter = IssueCounter()
        with Recorder(issuing=counter) as recorder, counter.running():
            action()
    return counter.issued, len(recorder.records)


def test_what_an_operation_asks_for_in_c_is_nested() -> None:
    gru = torch.nn.GRU(6, 6)
    places = {count: torch.randn(count, 2, 6) for count in (3, 30)}
    with torch.no_grad():
        short, few = counted(lambda: gru(places[3]))
        long, many = counted(lambda: gru(places[30]))
    assert few > short.nested >= few - 10
    assert long.nested - short.nested == many - few > 100
    assert long.calls == short.calls
    assert long.nodes == 0


def test_what_python_asks_for_is_not_nested() -> None:
    by_operators, operations = counted(lambda: WIDE * WIDE + WIDE - WIDE)
    by_functions, same = counted(lambda: torch.sub(torch.add(torch.mul(WIDE, WIDE), WIDE), WIDE))
    assert operations == same == 3
    assert by_operators.nested == by_functions.nested == 0
    assert by_functions.calls == by_operators.calls + 3


def test_python_functions_count_whatever_they_are() -> None:
    def deep(levels: int) -> torch.Tensor:
        return deep(levels - 1) if levels else WIDE.relu()

    (one, _), (ten, _) = counted(lambda: deep(1)), counted(lambda: deep(10))
    assert ten.calls - one.calls == 9


def test_what_is_asked_of_who_holds_a_tensor_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gradient that is summed, and a bias added to a product of three dimensions: each is looked at."""
    layer, sequences = torch.nn.Linear(6, 6), torch.randn(2, 3, 6, requires_grad=True)

    def step() -> None:
        (layer(sequences) + sequences * sequences).sum().backward()

    looked_at, _ = counted(step)
    monkeypatch.setattr("probes.microtrain.traces.recording.as_unwatched", lambda func, *_: func)
    not_looked_at, _ = counted(step)
    assert looked_at.calls == not_looked_at.calls > 0


def test_each_node_of_the_backward_counts_once_however_many_operations_it_runs() -> None:
    weight = torch.randn(6, 6, requires_grad=True)
    issued, operations = counted(lambda: (WIDE @ weight).relu().sum().backward())
    assert 3 <= issued.nodes <= 5
    assert issued.nodes + issued.nested < operations


@pytest.mark.parametrize("mode", ["training", "inference"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("layers", [LAYERS, [{"type": "gru", "hidden": 5, "output": "last"}, *LAYERS]])
def test_a_trace_counts_what_a_real_step_does(mode: Mode, precision: Precision, layers: list[Any]) -> None:
    shape = [7, 6] if len(layers) > 3 else [6]
    workload = Workload(parse_model({"layers": layers, "input_shape": shape}), 16, mode=mode)
    traced = trace_workload(workload).issued_under(precision)
    plan = Plan("cpu", precision, 1)
    with applied(plan):
        step = Workbench(workload, frozenset({"cpu"})).make_step(plan, 16)
        step()
        _, real = record_step(step)
    assert traced is not None
    assert traced[1:] == real[1:]
    assert traced.calls == pytest.approx(real.calls, rel=0.05)
    assert (real.nodes > 0) == (mode == "training")


def test_a_users_own_loop_is_seen(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    code = """
import torch
class Loop(torch.nn.Module):
    def __init__(self, times):
        super().__init__()
        self.inner, self.times = torch.nn.Linear(6, 6), times
    def forward(self, x):
        for _ in range(self.times):
            x = self.again(x)
        return self.inner(x)
    def again(self, x):
        return torch.relu(x)
def batch(size): return torch.randn(size, 6), torch.zeros(size, dtype=torch.long)
def once(): return Loop(1), batch
def often(): return Loop(21), batch
"""
    (tmp_path / "issuing_loop.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    once, often = (
        trace_workload(Workload(python_model(f"issuing_loop:{name}"), 4, mode="inference")).issued
        for name in ("once", "often")
    )
    assert once is not None
    assert often is not None
    assert often.calls - once.calls == 40  # again and relu, twenty times


def test_another_profiler_is_put_back_whatever_happens() -> None:
    def other(*_: object) -> None:
        return None

    def fails() -> None:
        raise RuntimeError

    sys.setprofile(other)
    try:
        with pytest.raises(RuntimeError):
            counted(fails)
        assert sys.getprofile() is other
    finally:
        sys.setprofile(None)


def test_what_is_watched_by_cprofile_is_counted_too_and_goes_on_being_watched() -> None:
    with cProfile.Profile() as watching:
        counted(lambda: None)
        again: object = sys.getprofile()
        assert again is watching


class Ring:
    """Garbage that only a collector finds, and that runs Python as it goes."""

    def __init__(self) -> None:
        self.own = self

    def __del__(self) -> None:
        sum(abs(number) for number in range(50))


@pytest.mark.parametrize("often", [1, 1_000_000])
def test_what_others_left_behind_is_not_finalized_at_a_steps_cost(often: int) -> None:
    def action() -> None:
        for _ in range(20):
            Ring()
            torch.relu(WIDE)

    before = gc.get_threshold()
    try:
        gc.set_threshold(often)
        issued, _ = counted(action)
    finally:
        gc.set_threshold(*before)
    assert issued.calls < 20 * 10  # fifty for each that was finalized
    assert gc.isenabled()


def test_what_another_thread_runs_is_not_counted_and_nothing_stays_set_there() -> None:
    """A device's backward has a thread of its own."""
    left: list[object] = []

    def backward() -> None:
        torch.relu(WIDE)
        left.append(sys.getprofile())

    counter = IssueCounter()
    recorder = Recorder(issuing=counter)

    def action() -> None:
        with recorder:
            backward()

    with counter.running():
        thread = threading.Thread(target=action)
        thread.start()
        thread.join()
    assert left == [None]
    assert len(recorder.records) == 1
