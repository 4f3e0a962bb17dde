"""What an epoch is made of. A GPU's parts run here on a CPU that says it is one: control flow, no figures."""

import pytest
import torch

from probes.microtrain.iris_experiment import epoch_costs
from probes.microtrain.iris_experiment.epoch_costs import CostMeter
from probes.microtrain.iris_experiment.iris import read_iris, split_iris
from probes.microtrain.step import Step
from tests.probes.microtrain.fake_runs import FakeClock

CPU = torch.device("cpu")


@pytest.fixture
def meter() -> CostMeter:
    return CostMeter(CPU, split_iris(read_iris()).training)


class Part:
    """In the place of a network's step: what issuing one takes, on a clock that nothing else moves."""

    def __init__(self, real: Step, clock: FakeClock, seconds: float) -> None:
        self.feed, self._clock, self._seconds = real.feed, clock, seconds

    def __call__(self) -> torch.Tensor:
        self._clock.now += self._seconds
        return torch.zeros(())


@pytest.fixture
def clock(meter: CostMeter, monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """Of a meter whose step takes the host 3 ms, and 1 ms with one row."""
    clock = FakeClock()
    monkeypatch.setattr(epoch_costs, "time", clock)
    monkeypatch.setattr(meter, "_learner", Part(meter._learner, clock, 0.003))
    monkeypatch.setattr(meter, "_one_row", Part(meter._one_row, clock, 0.001))
    return clock


def test_on_a_cpu_issuing_is_what_a_step_with_one_row_takes_and_computing_the_rest(
    meter: CostMeter, clock: FakeClock
) -> None:
    for _ in range(3):
        meter.take_samples()
    costs = meter.costs()
    assert costs.step.median == pytest.approx(0.003)
    assert costs.overheads.launch_seconds == pytest.approx(0.001)
    assert costs.overheads.compute_seconds == pytest.approx(0.002)
    assert costs.overheads.device_busy == pytest.approx(2 / 3)
    assert costs.overheads.transfer_seconds is None
    assert len(costs.reading.samples) == len(costs.ready_reading.samples) == 3


def test_nothing_is_known_before_the_first_sample(meter: CostMeter) -> None:
    with pytest.raises((ValueError, KeyError)):
        meter.costs()


@pytest.mark.parametrize(("busy", "share"), [(None, None), (0.004, 0.8), (1e9, 1.0)])
def test_on_a_gpu_the_host_s_time_is_the_launch_and_the_profiler_says_how_busy_it_is(
    meter: CostMeter, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, busy: float | None, share: float | None
) -> None:
    waits: list[object] = []

    def wait(device: object) -> None:
        clock.now += 0.1  # of the 50 steps that were issued
        waits.append(device)

    def copy() -> None:
        clock.now += 0.02

    monkeypatch.setattr(meter, "_device", torch.device("cuda:0"))
    monkeypatch.setattr(meter, "_copy_rows", copy)
    monkeypatch.setattr(epoch_costs, "synchronize", wait)
    monkeypatch.setattr(epoch_costs, "measure_busy_seconds", lambda step, batch: busy)
    meter.take_samples()
    costs = meter.costs()
    assert costs.step.median == pytest.approx(0.005)
    assert costs.overheads.launch_seconds == pytest.approx(0.003)
    assert costs.overheads.compute_seconds == pytest.approx(0.002)
    assert costs.overheads.transfer_seconds == pytest.approx(0.02)
    assert costs.overheads.device_busy == (None if share is None else pytest.approx(share))
    assert len(waits) == 2  # before the clock of the step stops, and before a ready result is read
