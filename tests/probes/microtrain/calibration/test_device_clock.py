"""What a device's kernels took, told apart by operation. The profiler's events are stood in for; its own, of a real
card, made the profiles that benchmarks keep."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch

from probes.microtrain.calibration import device_clock
from probes.microtrain.calibration.device_clock import MARK, OperationMarks, clock_device_steps, costs_of_marks
from probes.microtrain.calibration.networks import MICRO_NETWORKS
from probes.microtrain.calibration.operation_clock import record_operations
from probes.microtrain.measuring.workbench import StepRun, Workbench
from probes.workload.description import Plan
from tests.probes.microtrain.fake_runs import FakeClock, FakeRun


class Event(NamedTuple):
    """As torch's _KinetoEvent tells."""

    named: str
    device: str
    begin: int
    length: int
    correlation: int

    def name(self) -> str:
        return self.named

    def device_type(self) -> SimpleNamespace:
        return SimpleNamespace(name=self.device)

    def start_ns(self) -> int:
        return self.begin

    def duration_ns(self) -> int:
        return self.length

    def correlation_id(self) -> int:
        return self.correlation


FIRST, SECOND = Event(f"{MARK}1", "CPU", 0, 100, 1), Event(f"{MARK}2", "CPU", 120, 30, 2)


def test_an_operation_has_the_kernels_that_were_launched_within_its_mark() -> None:
    events = [
        SECOND,
        FIRST,
        Event("cudaLaunchKernel", "CPU", 50, 5, 7),
        Event("cudaMemcpyAsync", "CPU", 60, 5, 8),
        Event("kernel", "CUDA", 5_000, 1_000, 7),  # it runs long after the call has returned
        Event("copy", "CUDA", 9_000, 500, 8),
        Event("cuLaunchKernelEx", "CPU", 130, 5, 9),
        Event("kernel", "CUDA", 9_500, 250, 9),
    ]
    first, second = costs_of_marks(events)
    assert (first.kernels, second.kernels) == (2, 1)
    assert first.seconds == pytest.approx(1.5e-6)
    assert second.seconds == pytest.approx(0.25e-6)


def test_what_was_launched_between_two_operations_is_no_operations() -> None:
    events = [FIRST, SECOND, Event("cudaLaunchKernel", "CPU", 110, 5, 7), Event("kernel", "CUDA", 300, 1_000, 7)]
    assert [cost.kernels for cost in costs_of_marks(events)] == [0, 0]


def test_marks_as_the_device_shows_them_and_operations_of_torch_are_neither_kernels_nor_launches() -> None:
    """Numbers of operations and of launches are counted apart: 7 may be both."""
    events = [
        FIRST,
        Event(f"{MARK}1", "CUDA", 500, 90_000, 1),
        Event("cudaLaunchKernel", "CPU", 50, 5, 7),
        Event("cuda::_make", "CPU", 400, 5, 7),
        Event("kernel", "CUDA", 500, 1_000, 7),
    ]
    (cost,) = costs_of_marks(events)
    assert (cost.kernels, cost.seconds) == (1, pytest.approx(1e-6))


def _run() -> StepRun:
    network = next(each for each in MICRO_NETWORKS if each.name == "cnn-norm")
    bench = Workbench(network.workload("training"), frozenset(["cpu"]))
    return StepRun(bench, Plan("cpu", "bf16", 1), 4)


def test_as_many_operations_are_marked_as_recorded() -> None:
    step = _run().prepared()
    step()  # makes the optimizer's state
    with OperationMarks(device="cpu") as marks:
        step()
    assert marks.count == len(record_operations(step))


@pytest.mark.filterwarnings("ignore:CUDA is not available")
def test_where_the_profiler_sees_no_kernels_it_says_so() -> None:
    with pytest.raises(RuntimeError, match="no kernels"):
        clock_device_steps([_run()], 1)


def test_the_profiler_ends_on_the_card_that_it_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for the current device, which else is the first card: full, or nobody's to use."""
    log: list[str] = []

    def noting(name: str) -> Callable[..., AbstractContextManager[SimpleNamespace]]:
        @contextmanager
        def entered(*asked: str, **_: object) -> Iterator[SimpleNamespace]:
            log.append(" ".join((name, *asked)))
            yield SimpleNamespace(kineto_results=None)
            log.append(f"{name} ends")

        return entered

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device", noting("device"))
    monkeypatch.setattr(device_clock, "profile", noting("profile"))
    monkeypatch.setattr(device_clock, "_marked_step", lambda step: 0)
    with pytest.raises(RuntimeError, match="no kernels"):
        clock_device_steps([FakeRun(FakeClock(), Plan("cuda:1", "fp32"))], 1)  # type: ignore[list-item]
    assert log == ["device cuda:1", "profile", "profile ends", "device ends"]
