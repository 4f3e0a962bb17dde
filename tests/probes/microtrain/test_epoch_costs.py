"""What an epoch is made of. A GPU's parts run here on a CPU that says it is one: control flow, no figures."""

import pytest
import torch

from probes.microtrain import epoch_costs
from probes.microtrain.epoch_costs import CostMeter
from probes.microtrain.iris import read_iris, split_iris

CPU = torch.device("cpu")


@pytest.fixture
def meter() -> CostMeter:
    return CostMeter(CPU, split_iris(read_iris()).training)


def test_on_a_cpu_issuing_and_computing_make_up_the_step(meter: CostMeter) -> None:
    for _ in range(3):
        meter.take_samples()
    costs = meter.costs()
    launch, compute = costs.overheads.launch_seconds, costs.overheads.compute_seconds
    assert launch is not None
    assert compute is not None
    assert launch + compute == pytest.approx(costs.step.median)
    assert costs.overheads.transfer_seconds is None
    assert len(costs.reading.samples) == len(costs.ready_reading.samples) == 3


def test_nothing_is_known_before_the_first_sample(meter: CostMeter) -> None:
    with pytest.raises((ValueError, KeyError)):
        meter.costs()


@pytest.mark.parametrize(("busy", "share"), [(None, None), (1e9, 1.0)])
def test_on_a_gpu_the_host_s_time_is_the_launch_and_the_profiler_says_how_busy_it_is(
    meter: CostMeter, monkeypatch: pytest.MonkeyPatch, busy: float | None, share: float | None
) -> None:
    waits: list[object] = []
    monkeypatch.setattr(meter, "_device", torch.device("cuda:0"))
    monkeypatch.setattr(meter, "_copy_rows", lambda: None)
    monkeypatch.setattr(epoch_costs, "synchronize", waits.append)
    monkeypatch.setattr(epoch_costs, "measure_busy_seconds", lambda step, batch: busy)
    meter.take_samples()
    costs = meter.costs()
    assert costs.overheads.device_busy == share
    assert costs.overheads.transfer_seconds is not None
    assert costs.overheads.launch_seconds is not None
    assert costs.overheads.launch_seconds <= costs.step.median
    assert len(waits) == 2  # before the clock of the step stops, and before a ready result is read
