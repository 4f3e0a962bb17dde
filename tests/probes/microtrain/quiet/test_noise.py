"""How a noisy machine is told from a quiet one."""

from dataclasses import replace
from pathlib import Path

import pytest

from probes.limits import QuotaUse
from probes.microtrain.quiet.noise import (
    BUSY_WAITING,
    CpuTicks,
    Moment,
    QueueTime,
    noise_between,
    parse_queue,
    parse_ticks,
    read_moment,
    read_ticks,
)

LINE = "cpu  1000 0 500 8000 100 20 30 250 0 0\ncpu0 1 2 3\n"


def moment(clock: float, busy: float, total: float, own: float, stolen: float = 0.0) -> Moment:
    return Moment(clock, CpuTicks(busy, stolen, total), own, 0)


def test_the_kernels_line_is_read_in_seconds() -> None:
    ticks = parse_ticks(LINE, 100)
    assert ticks.busy == pytest.approx(15.5)
    assert ticks.stolen == pytest.approx(2.5)
    assert ticks.total == pytest.approx(99.0)


@pytest.mark.parametrize("text", ["", "cpu 1 2 3", "intr 5", "cpu  a b c d e f g h", "\x00"])
def test_what_the_kernel_does_not_say_is_unknown(text: str) -> None:
    assert parse_ticks(text, 100) == CpuTicks(None, None, None)


def test_a_machine_without_proc_is_unknown(tmp_path: Path) -> None:
    assert read_ticks(tmp_path) == CpuTicks(None, None, None)
    noise = noise_between(read_moment(tmp_path), read_moment(tmp_path), threads=2)
    assert noise.contention is None
    assert noise.why_busy is None


def test_our_own_work_is_no_noise() -> None:
    noise = noise_between(moment(0, 0, 0, 0), moment(10, 20, 20, 20), threads=2)
    assert noise.contention == 0.0
    assert noise.why_busy is None


def test_others_on_cores_that_we_leave_free_are_no_noise() -> None:
    noise = noise_between(moment(0, 0, 0, 0), moment(10, 70, 160, 40), threads=4)
    assert noise.others_cores == pytest.approx(3.0)
    assert noise.contention == 0.0


def test_others_on_our_cores_are_noise() -> None:
    noise = noise_between(moment(0, 0, 0, 0), moment(10, 20, 20, 10), threads=2)
    assert noise.contention == pytest.approx(0.5)
    assert "50%" in (noise.why_busy or "")
    assert noise.to_json()["busy"] is True


def test_waiting_for_a_core_is_noise_even_when_others_take_little() -> None:
    begun, ended = moment(0, 0, 0, 0), moment(10, 10, 20, 9)
    waited = noise_between(replace(begun, queue=QueueTime(1, 1)), replace(ended, queue=QueueTime(9, 3)), threads=1)
    assert waited.waiting_fraction == pytest.approx(0.2)
    assert "wait for a core for 20%" in (waited.why_busy or "")


@pytest.mark.parametrize(
    ("stopped", "waiting"),
    [(0.0, 0.5), (4.75, 0.25 / 5.25), (9.0, 0.0), (None, 0.5)],  # of several threads it is more than one waited
)
def test_waiting_for_our_own_quota_is_no_others_doing(stopped: float | None, waiting: float) -> None:
    """Half a core: the kernel stops a thread for half of its time, and counts that as ready and without a core."""
    begun, ended = moment(0, 0, 0, 0), moment(10, 5, 640, 5)
    begun = replace(begun, queue=QueueTime(1, 1), quota=QuotaUse(0.5, 3.0, None if stopped is None else 2.0))
    ended = replace(ended, queue=QueueTime(6, 6), quota=QuotaUse(0.5, 8.0, None if stopped is None else 2.0 + stopped))
    noise = noise_between(begun, ended, threads=1)
    assert noise.waiting_fraction == pytest.approx(waiting)
    assert (noise.why_busy is None) == (waiting <= BUSY_WAITING)


@pytest.mark.parametrize("text", ["", "5", "a b c"])
def test_a_kernel_that_keeps_no_queue_times_is_unknown(text: str) -> None:
    assert parse_queue(text) is None
    assert parse_queue("2000000000 1000000000 7\n") == QueueTime(2.0, 1.0)


def test_time_stolen_by_the_hypervisor_is_noise() -> None:
    noise = noise_between(moment(0, 0, 0, 0), moment(10, 10, 20, 10, stolen=2), threads=1)
    assert noise.steal_fraction == pytest.approx(0.1)
    assert "hypervisor" in (noise.why_busy or "")


def test_others_within_our_quota_are_noise_however_many_cores_are_idle() -> None:
    """A quota of two cores on a host of 64: of the ten seconds' twenty, others took ten."""
    begun, ended = moment(0, 0, 0, 0), moment(10, 20, 640, 10)
    within = replace(begun, quota=QuotaUse(2.0, 5.0)), replace(ended, quota=QuotaUse(2.0, 25.0))
    assert noise_between(begun, ended, threads=2).contention == 0.0
    assert noise_between(*within, threads=2).contention == pytest.approx(0.5)
    assert noise_between(*within, threads=1).contention == 0.0


def test_threads_of_our_own_beyond_a_quota_are_no_others() -> None:
    begun = replace(moment(0, 0, 0, 0), quota=QuotaUse(1.5, 0.0))
    ended = replace(moment(10, 15, 640, 15), quota=QuotaUse(1.5, 15.0))
    assert noise_between(begun, ended, threads=2).contention == 0.0
