"""Steps of a made-up card at batches that did not run, told from those that did."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import get_args

import pytest

from app.advisor.recommendation import Interval
from app.advisor.time_model.launch_bound import launch_bound_until
from app.advisor.time_model.measured import MeasuredTime
from app.advisor.time_model.predicted import PredictedTime
from app.advisor.time_model.step_time import PlanTime
from app.advisor.time_model.transfer import Feeding
from app.advisor.time_model.two_clocks import two_clocks
from probes.measurement import Measurement, Overheads, Timing
from probes.points import Point
from probes.workload.description import Data
from tests.app.advisor.build import a_measurement
from tests.app.advisor.machine import GPU
from tests.app.advisor.time_model.test_device_steps import a_network, predicted

# Issuing limits it up to a batch of some 400.
STEP = predicted(a_network(30, 4e5, 1e3))
SIZES = (1, 8, 64, 512, 4096, 32768)


def clocks(batch: int) -> tuple[float, float]:
    told = STEP.clocks(batch, "resident")
    assert told is not None
    return told.host, told.device


def test_the_step_goes_from_one_limit_to_the_other() -> None:
    assert [host > device for host, device in map(clocks, SIZES)] == [True, True, True, False, False, False]


def ran(batch: int, host: float, device: float, **changes: object) -> Measurement:
    """host, device: how many times as long as told each takes."""
    issued, computed = clocks(batch)
    return a_measurement(GPU, batch, max(host * issued, device * computed), data="resident", **changes)


def told(batch: int, *rows: Measurement, step: PredictedTime = STEP, data: Data = "resident") -> Interval:
    time = PlanTime(GPU, MeasuredTime({row.batch_size: row for row in rows}, rows[0].data), step, None)
    found = time.seconds(batch, data)
    assert found is not None
    return found


def spread(interval: Interval) -> float:
    return math.log(interval.high / interval.low) / 2


@pytest.mark.parametrize(("host", "device"), [(1.3, 0.5), (0.6, 1.5), (0.7, 0.6), (1.5, 1.5)])
def test_what_one_clock_is_off_by_is_not_put_on_the_other(host: float, device: float) -> None:
    """Between a batch that issuing limits and one that computing does: by the whole step's error a flat step was told
    as twice what it took, or as less than the smaller batch."""
    ends = ran(1, host, device), ran(4096, host, device)
    for batch in (8, 64):
        assert told(batch, *ends).median == pytest.approx(host * clocks(batch)[0], rel=0.01)
    assert told(1024, *ends).median == pytest.approx(max(host * clocks(1)[0], device * clocks(1024)[1]), rel=0.15)
    beyond = device**0.5 * clocks(32768)[1]  # three octaves beyond what ran, half is carried
    assert told(32768, *ends).median == pytest.approx(beyond, rel=0.01)


def test_issuing_takes_the_same_at_any_batch_that_it_limits() -> None:
    for from_, to in itertools.permutations((1, 8, 64), 2):
        assert told(to, ran(from_, 1.6, 1.0)).median == pytest.approx(1.6 * clocks(to)[0])


def test_where_issuing_would_have_to_take_longer_than_elsewhere_the_device_was_the_limit() -> None:
    """Told to issue for three times as long as it does: it seems to be the limit at 512, too."""
    slow = replace(STEP, model=replace(STEP.model, fit=replace(STEP.model.fit, factors=(1.0, 1.0, 3.0, 3.0, 1.0))))
    issued, computed = slow.clocks(512, "resident")[:2]  # type: ignore[index]
    assert issued > computed
    rows = ran(1, 1.0, 1.0), ran(512, 1.0, 1.5)
    assert told(4096, *rows, step=slow).median == pytest.approx(1.5**0.5 * clocks(4096)[1], rel=0.01)
    assert told(8, *rows, step=slow).median == pytest.approx(clocks(8)[0], rel=0.01)


@pytest.mark.parametrize(("launch", "busy"), [(0.4, 1.0), (0.4, None), (1.0, 0.3)])
def test_which_clock_was_the_limit_is_as_it_was_measured(launch: float, busy: float | None) -> None:
    """At a batch that is told to be limited by the other."""
    issued, computed = clocks(512)
    took = 4 * computed
    parts = Overheads(0.0, launch_seconds=launch * took, compute_seconds=(1 - launch) * took, device_busy=busy)
    row = a_measurement(GPU, 512, took, data="resident", overheads=parts)
    device = took * (0.3 if busy == 0.3 else 1.0)
    for batch in (8, 4096):
        factor = (0.5 if batch > 512 else 0.25, device / computed)
        share = factor[1] ** (0.5 ** (abs(math.log2(batch / 512)) / 3))
        expected = max(launch * took / issued * clocks(batch)[0], share * clocks(batch)[1])
        assert told(batch, row).median == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("data", get_args(Data))
@pytest.mark.parametrize("factor", [0.1, 0.8, 1.0, 3.0])
def test_what_ran_is_told_as_it_was_and_its_neighbours_nearly_so(data: Data, factor: float) -> None:
    """Also where batches are copied for longer than the step takes, or the copy is told longer than the step took."""
    copies = tuple(Point("transfer", GPU, {}, 0.0, size, Timing.from_samples([size / 1e9] * 3)) for size in (1e3, 1e9))
    feeding = Feeding(on_cpu=False, pageable=copies, pinned=copies, reading=0.0)
    step = replace(STEP, model=replace(STEP.model, feeding=feeding), log_every=None)
    rows = []
    for batch in (8, 256, 4096):
        alone = step.at(batch, data)
        assert alone is not None
        rows.append(a_measurement(GPU, batch, factor * alone.median, data=data))
    for row in rows:
        assert row.step is not None
        for batch in (row.batch_size - 1, row.batch_size + 1):
            near = step.at(batch, data).median / step.at(row.batch_size, data).median  # type: ignore[union-attr]
            assert told(batch, *rows, step=step, data=data).median == pytest.approx(near * row.step.median, rel=0.15)


@pytest.mark.parametrize("data", get_args(Data))
def test_a_copy_that_outlasts_the_kernels_is_not_put_on_issuing(data: Data) -> None:
    """Of a pinned one the device's clock read none: it was told at any batch as the host's, up to six times too
    long."""
    copies = (Point("transfer", GPU, {}, 0.0, 1e6, Timing.from_samples([1.0] * 3)),)
    feeding = Feeding(on_cpu=False, pageable=copies, pinned=copies, reading=0.0)
    step = replace(STEP, model=replace(STEP.model, feeding=feeding), log_every=None)
    took = {size: step.clocks(size, data).step for size in SIZES}  # type: ignore[union-attr]
    for batch in (8, 64):
        launch, busy = clocks(batch)
        parts = Overheads(step.copy_seconds(batch, data), launch, device_busy=busy / took[batch])
        row = a_measurement(GPU, batch, took[batch], data=data, overheads=parts)
        for size in SIZES:
            assert told(size, row, step=step, data=data).median == pytest.approx(took[size], rel=0.01)


@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_what_a_copy_is_off_by_is_not_put_on_kernels(factor: float) -> None:
    """Fed pinned it is the device's clock that both are on."""
    copies = (Point("transfer", GPU, {}, 0.0, 1e6, Timing.from_samples([1.0] * 3)),)
    feeding = Feeding(on_cpu=False, pageable=copies, pinned=copies, reading=0.0)
    step = replace(STEP, model=replace(STEP.model, feeding=feeding), log_every=None)
    row = a_measurement(GPU, 8, factor * step.clocks(8, "pinned").step, data="pinned")  # type: ignore[union-attr]
    found = two_clocks(step, MeasuredTime({8: row}, "pinned"))
    assert found is not None
    assert found.issuing(8) == pytest.approx(1.0)
    assert launch_bound_until(step, found, SIZES) == launch_bound_until(step, None, SIZES)
    assert found.spread(9) < step.model.fit.spread / 2


def test_a_clock_that_was_never_the_limit_is_known_no_better_than_it_was_predicted() -> None:
    alone = STEP.at(64, "resident")
    assert alone is not None
    small = ran(8, 1.0, 1.0)
    near, far, computing = (spread(told(batch, small)) for batch in (9, 128, 32768))
    assert near < far < computing
    assert computing > spread(alone)
    between = spread(told(64, small, ran(512, 1.0, 1.0)))
    assert between < spread(told(64, small))
