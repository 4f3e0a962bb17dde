"""Which samples are the calm machine's."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import pytest
import torch

from probes.microtrain.quiet import pace
from probes.microtrain.quiet.calm import APART, CALM, LONG_APART, MOST_SLOWED, SHORT_APART, SUFFERED, Calm
from probes.microtrain.quiet.pace import read_pace
from probes.microtrain.step import applied
from probes.workload.description import Plan


def test_a_sample_is_calm_while_its_reading_is_near_the_quickest() -> None:
    calm = Calm()
    readings = [calm.learn((reading,)) for reading in (1.5, 1.0, 1.05, 1.4)]
    assert calm.best == 1.0
    assert [calm.is_calm(reading) for reading in readings] == [False, True, True, False]
    assert calm.choose([15.0, 10.0, 10.5, 14.0], readings) == [10.0, 10.5]
    assert calm.count(readings) == 2


def test_one_hiccup_among_a_sample_s_readings_says_nothing() -> None:
    calm = Calm(1.0)
    assert calm.is_calm(calm.learn((1.0, 20.0, 1.0, 1.01)))
    assert not calm.is_calm(calm.learn((1.5, 1.0, 1.5, 1.4)))


def test_one_calm_sample_says_more_than_all_others() -> None:
    assert Calm(1.0).choose([15.0, 10.0, 14.0, 16.0], [1.5, 1.0, 1.4, 1.6]) == [10.0]


def test_calm_samples_that_took_longer_than_others_are_not_believed() -> None:
    samples, readings = [20.0, 10.0, 11.0, 10.0], [1.0, 1.5, 1.4, 1.4]
    assert Calm(1.0).choose(samples, readings) == samples
    assert not Calm(1.0).met(samples, readings)
    slowdown = Calm(1.0).slowdown(samples, readings)
    assert slowdown is not None
    assert (slowdown.share, slowdown.factor) == (0.75, None)
    assert Calm(1.0).choose([10.4, *samples[1:]], readings) == [10.4]


def test_the_least_that_a_step_may_take_grants_slow_cores_what_they_did_to_the_fixed_work() -> None:
    assert Calm(1.0).least([30.0, 40.0], [1.5, 1.4]) == pytest.approx(30.0 / MOST_SLOWED)
    assert Calm(1.0).least([30.0, 300.0], [1.5, 40.0]) == pytest.approx(300.0 / 40.0)
    assert Calm(1.0).least([30.0], [None]) == pytest.approx(30.0 / MOST_SLOWED)


def test_each_process_has_one_figure_of_its_calm_samples() -> None:
    samples, readings = [10.0, 15.0, 12.0, 20.0, 30.0], [1.0, 1.5, 1.0, 1.0, 1.4]
    assert Calm(1.0).by_process(samples, readings, [0, 0, 0, 1, 2]) == [11.0, 20.0]
    reckoned = Calm(1.0).by_process([15.0, 14.0], [1.5, 1.4], [0, 1])
    assert reckoned == pytest.approx([15.0 / 1.5**SUFFERED, 14.0 / 1.4**SUFFERED])


def test_nothing_is_reckoned_back_further_than_neighbours_slow_the_cores() -> None:
    samples = [15.0, 160.0]
    assert Calm(1.0).choose(samples, [1.5, 15.0]) == pytest.approx([15.0 / 1.5**SUFFERED])
    assert Calm(1.0).choose(samples, [15.0, 14.0]) == samples  # our own work, or
    assert Calm(1e-12).choose(samples, [1.0, 1.5]) == samples  # a profile that says what no machine does


def test_where_none_was_calm_what_is_told_is_reckoned_back() -> None:
    calm = Calm(1.0)
    readings = [1.5, 1.4]
    expected = [15.0 / 1.5**SUFFERED, 14.0 / 1.4**SUFFERED]
    assert calm.choose([15.0, 14.0], readings) == pytest.approx(expected)
    slowdown = calm.slowdown([15.0, 14.0], readings)
    assert slowdown is not None
    assert slowdown.share == 1.0
    assert slowdown.factor is None


def test_how_much_longer_slow_samples_took_is_told() -> None:
    calm = Calm(1.0)
    slowdown = calm.slowdown([10.0, 10.0, 10.0, 14.0], [1.0, 1.0, 1.0, 1.0 + 5 * (CALM - 1)])
    assert slowdown is not None
    assert slowdown.share == 0.25
    assert slowdown.factor == pytest.approx(1.4)
    whole = calm.slowdown([10.0, 10.0, 10.0], [1.0, 1.0, 1.0])
    assert whole is not None
    assert (whole.share, whole.factor) == (0.0, 1.0)


def test_without_readings_all_is_calm_and_nothing_is_told() -> None:
    calm = Calm()
    assert calm.learn(()) is None
    assert calm.choose([1.0, 2.0], [None, None]) == [1.0, 2.0]
    assert calm.count([None, None]) == 2
    assert calm.slowdown([1.0, 2.0], [None, None]) is None


@pytest.mark.parametrize("threads", [1, 2])
def test_the_pace_is_read_on_as_many_threads_as_torch_has(threads: int) -> None:
    with applied(Plan("cpu", "fp32", threads)):
        assert 0 < min(read_pace() for _ in range(5)) < 1
        assert torch.get_num_threads() == threads


def _read_on_a_clock(taken: Sequence[float]) -> tuple[float, int]:
    """The pace where the fixed work takes so many seconds, time after time; and how often it ran."""
    moments = list(accumulate(taken, initial=100.0))
    looked_at = iter(moments)
    with applied(Plan("cpu", "fp32", 1)):
        found = read_pace(lambda: next(looked_at))
    return found, len(moments) - len(list(looked_at)) - 1


def test_threads_that_are_not_at_work_yet_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a step leaves (cold caches, a slower clock, sleeping threads) is not a neighbour's doing."""
    monkeypatch.setattr(pace, "_quickest", {1: 40e-6})
    found, rounds = _read_on_a_clock([70e-6, 60e-6, 41e-6, 40e-6])
    assert found == pytest.approx(41e-6)
    assert rounds == 3


def test_a_neighbour_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = 60e-6
    monkeypatch.setattr(pace, "_quickest", {1: 40e-6})
    found, rounds = _read_on_a_clock([slow] * 100)
    assert found == pytest.approx(slow)
    assert rounds == math.ceil(pace.SECONDS / slow)


def test_the_first_reading_of_a_process_goes_on_for_all_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing says yet how quick the cores can be."""
    monkeypatch.setattr(pace, "_quickest", {})
    found, rounds = _read_on_a_clock([80e-6, 40e-6, *[50e-6] * 100])
    assert found == pytest.approx(40e-6)
    assert rounds > 30


def test_what_is_computed_on_is_there_before_a_reading_begins() -> None:
    pace._tensors.cache_clear()
    there: list[int] = []

    def clock() -> float:
        there.append(pace._tensors.cache_info().currsize)
        return len(there) * pace.SECONDS

    read_pace(clock)
    assert there[0] == 1


def test_the_pace_is_the_cores_own_wherever_new_tensors_lie() -> None:
    """As after a script's torch.set_default_device."""
    pace._tensors.cache_clear()
    with torch.device("meta"):
        assert read_pace() > 0
    assert pace._tensors(torch.get_num_threads())[0].sum().isfinite()


def test_reading_the_pace_leaves_gradients_as_they_are() -> None:
    weight = torch.ones(3, requires_grad=True)
    read_pace()
    (weight * 2).sum().backward()
    assert weight.grad is not None


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_reading_the_pace_leaves_the_heap_alone() -> None:
    """What it would keep there would lie between a step's blocks."""
    pace._tensors.cache_clear()
    for tensor in pace._tensors(2):
        assert len(tensor) == 2 * pace.ELEMENTS
        assert not _is_in_heap(tensor.data_ptr())


def _is_in_heap(address: int) -> bool:
    for line in Path("/proc/self/maps").read_text().splitlines():
        low, high = (int(each, 16) for each in line.split()[0].split("-"))
        if low <= address < high:
            return line.endswith("[heap]")
    return False


@pytest.mark.parametrize(("seconds", "power"), [(0.002, SHORT_APART), (0.5, LONG_APART)])
def test_on_cores_that_share_no_cache_short_steps_suffer_and_long_ones_hardly(seconds: float, power: float) -> None:
    assert Calm(1.0).choose([seconds], [2.0]) == pytest.approx([seconds / 2.0**power])
    assert Calm(1.0).choose([seconds], [1.5]) == pytest.approx([seconds / 1.5**SUFFERED])
    most = [MOST_SLOWED, APART - 0.01]
    assert all(1.4 * Calm(1.0).choose([seconds], [times])[0] > seconds for times in most), "DISPROVED rests on it"
