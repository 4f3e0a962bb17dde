"""Half of a trace made in another process: a real one, forked from one that has torch and transformers."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from app.advisor.memory_model.peaks import Peaks
from probes.microtrain.processes import fresh_processes
from probes.microtrain.traces import autocast_beside
from probes.microtrain.tracing import trace_workload
from probes.trace import Trace
from probes.workload.description import InvalidModel, Workload
from probes.workload.models import parse_model, python_model
from tests.probes.microtrain.kernel_memory.enough_time import give_time
from tests.probes.microtrain.tiny import IMAGE, TINY

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing can be forked")

DENSE = {"layers": [{"type": "linear", "out": 8}, "relu", {"type": "linear", "out": 2}], "input_shape": [4]}


plainly_serve = autocast_beside._serve


def serve_with_time(serve: Callable[[Callable[[Any], object]], object], threads: int) -> None:
    """In the other process."""
    give_time(setattr)
    plainly_serve(serve, threads)


@pytest.fixture(scope="module")
def forks() -> Iterator[None]:
    """Both processes try all kernels: how many they have time for is luck."""
    assert fresh_processes.prepare(for_configs=True)
    autocast_beside.end()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(autocast_beside, "_serve", serve_with_time)
        give_time(patch.setattr)
        yield
    autocast_beside.end()
    fresh_processes.end()


def trace(model: Any, **options: Any) -> Trace:
    return trace_workload(Workload(parse_model(model), 4, **options))


def other_process() -> int:
    assert autocast_beside._kept is not None
    assert autocast_beside._kept.pid is not None
    return autocast_beside._kept.pid


def without_luck(found: Trace) -> Trace:
    """Without what differs by a little from run to run: how many calls a process's first step has, and how far kernels
    were tried in the time that there was."""
    issued = [None if each is None else each._replace(calls=0) for each in (found.issued, found.autocast_issued)]
    return replace(found, issued=issued[0], autocast_issued=issued[1], kernel_peaks=(), autocast_kernel_peaks=())


@pytest.mark.parametrize(
    "options", [{}, {"mode": "inference"}, {"optimizer": "sgd"}], ids=["adamw", "inference", "sgd"]
)
@pytest.mark.parametrize("model", [DENSE, IMAGE, TINY["bert"]], ids=["dense", "image", "bert"])
def test_a_trace_made_by_two_processes_is_that_of_one(
    model: Any, options: Any, forks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    halved = trace(model, **options)
    assert psutil.pid_exists(other_process())
    monkeypatch.setattr(autocast_beside, "_asked", lambda _: None)
    whole = trace(model, **options)
    assert halved.autocast_operations
    assert without_luck(halved) == without_luck(whole)
    assert halved.autocast_issued is not None
    assert whole.autocast_issued is not None
    assert halved.autocast_issued.calls == pytest.approx(whole.autocast_issued.calls, rel=0.05)
    for size in (1, 16, 128):
        peaks = [Peaks(knots=each.autocast_kernel_peaks).at(size) for each in (halved, whole)]
        assert peaks[0] == pytest.approx(peaks[1], rel=0.02)


def test_the_other_process_is_kept_for_the_next_trace(forks: None) -> None:
    trace(DENSE)
    first = other_process()
    trace(IMAGE)
    assert other_process() == first


def test_a_killed_process_costs_no_trace(forks: None) -> None:
    whole = trace(DENSE)
    os.kill(other_process(), signal.SIGKILL)
    assert without_luck(trace(DENSE)) == without_luck(whole)
    trace(DENSE)
    assert psutil.pid_exists(other_process())


def test_what_cannot_be_traced_is_refused_as_ever_and_leaves_nothing_at_work(forks: None) -> None:
    trace(DENSE)
    config = {**TINY["bert"], "huggingface": {**TINY["bert"]["huggingface"], "hidden_size": 15}}
    with pytest.raises(InvalidModel):
        trace(config)
    assert trace(DENSE).autocast_operations


def test_a_users_own_model_is_made_in_this_process_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forks: None
) -> None:
    program = (
        "import os, pathlib, torch\n"
        "def made():\n"
        "    with pathlib.Path('made.txt').open('a') as file:\n"
        "        print(os.getpid(), file=file)\n"
        "    return torch.nn.Linear(4, 2), lambda size: (torch.randn(size, 4), torch.randint(2, (size,)))\n"
    )
    (tmp_path / "own_beside.py").write_text(program)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert trace_workload(Workload(python_model("own_beside:made"), 4)).autocast_operations
    assert set((tmp_path / "made.txt").read_text().split()) == {str(os.getpid())}
