"""What each of several devices gets of a micro-network's time. The devices are fakes that take all they may."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from probes.context import Context
from probes.microtrain.calibration.calibration_networks import KERNELS_SHARE, NetworkContest
from probes.microtrain.calibration.network_times import NetworkTimes
from probes.microtrain.calibration.networks import MICRO_NETWORKS
from probes.workload.description import Plan
from tests.probes.microtrain.fake_runs import FakeClock

CARDS = tuple(Plan(f"cuda:{place}", "fp32") for place in range(3))
SECONDS = 6.0


@pytest.fixture
def spent(monkeypatch: pytest.MonkeyPatch, clock: FakeClock) -> list[tuple[str, float, float]]:
    """By whom, how long for steps, and how long for kernels, in the order in which they ran."""
    found: list[tuple[str, float, float]] = []

    def measure(network: Any, mode: str, plans: Sequence[Plan], deadline: float) -> NetworkTimes:
        found.append((plans[0].device, deadline - clock.now, 0.0))
        clock.now = deadline
        return NetworkTimes([], [], None)

    def contexts(clocked: Any, network: str, mode: str, plans: Sequence[Plan], seconds: float) -> list[Context]:
        device, steps, _ = found[-1]
        found[-1] = (device, steps, seconds)
        clock.now += seconds
        return []

    monkeypatch.setattr("probes.microtrain.calibration.calibration_networks.time", clock)
    monkeypatch.setattr("probes.microtrain.calibration.calibration_networks.measure_on_device", measure)
    monkeypatch.setattr("probes.microtrain.calibration.kernel_clock.KernelClock.contexts", contexts)
    return found


def test_each_has_an_equal_share_and_another_begins_each_time(
    spent: list[tuple[str, float, float]], clock: FakeClock
) -> None:
    """The first once had three fifths of it and then the rest, and the second its smallest batch alone."""
    contest = NetworkContest(CARDS, {})
    row: Any = SimpleNamespace(network=MICRO_NETWORKS[0], mode="training")
    for _ in CARDS:
        contest._measure_row(row, clock.now + SECONDS, lambda: None)
    assert [device for device, _, _ in spent] == [f"cuda:{place}" for place in (0, 1, 2, 1, 2, 0, 2, 0, 1)]
    share = SECONDS / len(CARDS)
    for _, steps, kernels in spent:
        assert steps == pytest.approx(share * (1 - KERNELS_SHARE))
        assert kernels == pytest.approx(share * KERNELS_SHARE)
